"""The generated JSON Schema: up to date, as strict as the models, and without side effects."""

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

from servemap.model.load import assemble, parse_campaign, read_yaml
from servemap.model.schema import SCHEMA_FILE, campaign_schema, schema_text

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / SCHEMA_FILE


@pytest.fixture
def config() -> dict[str, Any]:
    return assemble(read_yaml(ROOT / "config/config.yaml"))


def test_the_schema_file_is_what_the_models_give() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), (
        "run `python -m servemap.model.schema` in the repository"
    )


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(yaml.safe_load(schema_text()))


def test_validating_changes_nothing(config: dict[str, Any]) -> None:
    before = copy.deepcopy(config)
    validate(config, str(SCHEMA))
    assert config == before


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("runn", 1, "'runn' was unexpected"),
        ("model", 3, "3 is not of type 'object'"),
        ("model", {"name": "m", "path": "p"}, "'context' is a required property"),
        ("cases", [], "non-empty"),
        ("cases", [{"id": "a", "isl": 1, "osl": 1, "concurency": 2}], "'concurency' was unexp"),
        ("cases", [{"id": "a", "kind": "mixed"}], "'background' is a required property"),
        ("scale", {"tokens_per_k": 0}, "less than the minimum"),
        ("collectors", {"Not a slug": {}}, "does not match any of the regexes"),
    ],
)
def test_snakemake_refuses_what_the_models_refuse(
    config: dict[str, Any], key: str, value: Any, says: str
) -> None:
    config[key] = value
    with pytest.raises(WorkflowError, match=says):
        validate(config, str(SCHEMA))
    with pytest.raises(Exception, match=key):
        parse_campaign(config)


def test_no_default_is_left_that_validating_would_write() -> None:
    def keys(node: Any, named: bool = False) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keys, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        below = [
            keys(item, key in ("properties", "patternProperties", "$defs"))
            for key, item in node.items()
        ]
        return set().union(*below, set() if named else set(node))

    assert keys(campaign_schema()) & {"default", "oneOf", "description"} == {"description"}


def test_defaults_are_told() -> None:
    policy = campaign_schema()["$defs"]["Policy"]["properties"]
    assert policy["max_attempts"]["description"] == "Default: 2."
