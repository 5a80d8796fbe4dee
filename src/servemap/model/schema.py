"""The JSON Schema of the campaign file, generated from the models.

`python -m servemap.model.schema`, run in the repository, writes it anew.

`snakemake.utils.validate` writes every `default` of a schema into the configuration that it
checks, and fails without a message where it meets a value that is no mapping. So the schema has
none: defaults are told in the descriptions, and filled in by the models alone.
"""

from pathlib import Path
from typing import Any

import yaml

from servemap.model.campaign import Campaign
from servemap.model.canon import canonical_json, write_text_atomic

SCHEMA_FILE = Path("workflow/schemas/config.schema.yaml")

_HEADER = "# Generated from the models by `python -m servemap.model.schema`; edit those.\n"


def campaign_schema() -> dict[str, Any]:
    """Return the schema of a campaign that was assembled (`extends` and `inventory` filled in)."""
    schema: dict[str, Any] = _plain(Campaign.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """Return the schema file's text."""
    return _HEADER + yaml.safe_dump(campaign_schema(), sort_keys=False, width=100)


def _plain(node: Any) -> Any:
    """Return a part of a schema without titles and defaults, closed where it names its keys."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {
        key: {name: _plain(item) for name, item in value.items()}
        if key in ("properties", "patternProperties", "$defs")
        else _plain(value)
        for key, value in node.items()
        if key not in ("title", "default", "oneOf")
    }
    if "default" in node and node["default"] is not None:
        told = f"Default: {canonical_json(node['default'])}."
        plain["description"] = f"{node.get('description', '')} {told}".strip()
    if "patternProperties" in node:
        plain["additionalProperties"] = False
    if "oneOf" in node:
        plain |= _by_kind([option["$ref"] for option in node["oneOf"]])
    return plain


def _by_kind(references: list[str]) -> dict[str, Any]:
    """Return a choice by `kind` that, unlike oneOf, lets an error name the key that is wrong."""
    fixed, *others = references
    chosen: dict[str, Any] = {"$ref": fixed}
    for reference in others:
        kind = reference.rpartition("/")[2].removesuffix("Case").removesuffix("Baseline").lower()
        is_kind = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
        chosen = {"if": is_kind, "then": {"$ref": reference}, "else": chosen}
    return chosen


if __name__ == "__main__":
    write_text_atomic(SCHEMA_FILE, schema_text())
