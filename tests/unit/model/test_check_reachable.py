"""Limits that nothing can meet, or everything does, are refused before anything is measured."""

from typing import Any

import pytest

from servemap.cli_search import search
from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.slo import Slo
from tests.fakes import campaign

SEARCH = {"id": "s", "kind": "search", "isl": 64, "osl": 8, "most": 4, "slo": {"e2e_s": 0}}
UNREACHABLE = [
    *(({"slo": {name: 0}}, f"slo.{name}") for name in Slo.model_fields),
    (
        {"cases": [SEARCH], "phases": [{"id": "phase1", "cases": ["s"]}]},
        "cases.s.slo.e2e_s",
    ),
    ({"targets": ["ttft_p90_s <= 5", "ttft_p90_s <= 1e999"]}, "targets.1"),
    ({"targets": [{"target": "output_tps_p10 >= 1e400", "gate": True}]}, "targets.0"),
]


@pytest.mark.parametrize(("keys", "where"), UNREACHABLE)
def test_a_limit_that_tells_nothing_is_refused(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_context(campaign(**keys))
    assert error.value.where == where
    assert error.value.remedy.startswith("give ")


@pytest.mark.parametrize(("keys", "_where"), UNREACHABLE)
def test_a_record_of_an_earlier_run_is_read_as_it_is(keys: dict[str, Any], _where: str) -> None:
    assert load_context(campaign(**keys), traces=False).plan.cases


def test_a_search_of_bench_is_refused_too() -> None:
    line = "--search --slo ttft_s=1,e2e_s=0 --most 4 --out /nonexistent/out --url u --model m"
    with pytest.raises(ConfigError, match="e2e_s is 0, which no request meets"):
        search(line.split(), lambda _: 0)
