"""The table of what collectors and baselines need covers all that there are."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from servemap.model.baselines import BaselineBase
from servemap.prepare.needs import needs, parse_needs
from servemap.telemetry.catalogue import catalogue


def test_every_collector_and_baseline_has_an_entry() -> None:
    table = needs()
    assert set(catalogue()) <= set(table.collectors)
    schemas = [model.model_json_schema() for model in BaselineBase.__subclasses__()]
    kinds = {schema["properties"]["kind"]["const"] for schema in schemas}
    assert kinds
    assert kinds <= set(table.baselines)


def test_every_tool_says_how_it_is_installed() -> None:
    table = needs()
    groups = (table.collectors, table.baselines, table.facts)
    used = {tool for group in groups for need in group.values() for tool in need.tools}
    assert used == set(table.install)


def test_a_wrong_table_is_refused() -> None:
    names = ("collectors", "baselines", "facts", "engines", "install")
    good: dict[str, Any] = {"schema": 1, **{name: {} for name in names}}
    assert parse_needs(yaml.safe_dump(good)).install == {}
    for bad in (
        {**good, "schema": 2},
        {**good, "more": {}},
        {**good, "collectors": {"x": {"tools": []}}},
    ):
        with pytest.raises(ValidationError):
            parse_needs(yaml.safe_dump(bad))
