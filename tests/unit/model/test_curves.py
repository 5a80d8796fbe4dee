"""Curves: their points are ordinary cases with predictable ids; searches: what is refused."""

from typing import Any

import pytest

from servemap.measure.setup import load_context
from servemap.measure.status import planned_repeats
from servemap.model.cases import CaseBase
from servemap.model.errors import ConfigError
from servemap.model.replay import replayed
from servemap.prepare.planned_bytes import case_bytes
from tests.fakes import campaign

CURVE = {"id": "k", "kind": "curve", "isl": 64, "osl": 8, "concurrencies": [1, 4], "repeats": 2}
SEARCH = {"id": "s", "kind": "search", "isl": 64, "osl": 8, "most": 64}


def planned(case: dict[str, Any], **keys: Any) -> Any:
    phases = keys.pop("phases", [{"id": "phase1", "cases": [case["id"]]}])
    return load_context(campaign(cases=[case], phases=phases, **keys)).plan


def refused(case: dict[str, Any], **keys: Any) -> str:
    with pytest.raises(ConfigError) as error:
        planned(case, **keys)
    return str(error.value)


def test_a_curve_is_its_points() -> None:
    plan = planned(CURVE)
    assert list(plan.cases) == ["k-c1", "k-c4"]
    repeats = [(case, repeat) for variant, case, repeat in plan.items().repeats if variant == "few"]
    assert repeats == [("k-c1", 1), ("k-c4", 1), ("k-c1", 2), ("k-c4", 2)]
    alone = {"id": "k-c4", "isl": 64, "osl": 8, "concurrency": 4}
    key = ("case", "baseline", "k-c4")
    assert plan.spec(*key) == planned(alone).spec(*key), "a point is the case that it stands for"


def test_a_point_has_all_that_its_curve_says() -> None:
    """Whatever every kind of case has holds for the points too."""
    said = {"warmup": "none", "cache": "flush", "request_timeout_s": 7, "case_timeout_s": 8,
            "expect": "failure", "expected_s": 9, "repeats": 2}  # fmt: skip
    assert set(said) == set(CaseBase.model_fields) - {"id"}
    server = {"engine": "vllm", "attach": "http://127.0.0.1:1"}
    alone = {"variables": [], "variants": [{"id": "baseline"}], "server": server}
    for case in planned({**CURVE, **said}, **alone).cases.values():
        assert case.model_dump(include=set(said)) == said


def test_a_phase_may_name_one_point() -> None:
    plan = planned(CURVE, phases=[{"id": "phase1", "cases": ["k-c4"]}])
    assert {case for _, case, _ in plan.items().repeats} == {"k-c4"}


def test_rates_and_waves() -> None:
    rates = {**CURVE, "concurrencies": [], "rates_rps": [2.5, 40], "min_window_s": 10}
    plan = planned({**rates, "num_prompts": 50})
    assert {name: case.num_prompts for name, case in plan.cases.items()} == {
        "k-r2-5": 50,
        "k-r40": 400,
    }
    waves = planned({**CURVE, "num_prompts": 10})
    assert [case.num_prompts for case in waves.cases.values()] == [10, 12]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"concurrencies": []}, "either concurrencies or rates_rps"),
        ({"rates_rps": [1]}, "either concurrencies or rates_rps"),
        ({"concurrencies": [4, 4]}, "twice"),
        ({"concurrencies": [], "rates_rps": [1]}, "num_prompts or min_window_s"),
        ({"id": "k" * 63}, "longer than 64"),
    ],
)
def test_curves_that_are_refused(change: dict[str, Any], word: str) -> None:
    assert word in refused({**CURVE, **change})


def test_a_point_may_not_take_the_id_of_another_case() -> None:
    other = {"id": "k-c4", "isl": 64, "osl": 8, "concurrency": 4}
    with pytest.raises(ConfigError, match="k-c4"):
        load_context(campaign(cases=[CURVE, other], phases=[{"id": "phase1", "cases": ["k"]}]))


def test_a_search_needs_an_slo() -> None:
    assert "no SLO declared, no frontier" in refused(SEARCH)
    own = planned({**SEARCH, "slo": {"ttft_s": 1}}, slo={"tpot_s": 2})
    assert own.spec_data("case", "baseline", "s")["case"]["slo"] == {"ttft_s": 1}
    common = planned(SEARCH, slo={"tpot_s": 2})
    assert common.spec_data("case", "baseline", "s")["case"]["slo"] == {"tpot_s": 2}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"start": 65}, "start is above most"),
        ({"start": 1.5}, "whole number"),
        ({"most": 70_000}, "most concurrency"),
        ({"max_probes": 100}, "max_probes"),
        ({"burstiness": 0.5}, "burstiness"),
    ],
)
def test_searches_that_are_refused(change: dict[str, Any], word: str) -> None:
    assert word in refused({**SEARCH, **change}, slo={"ttft_s": 1})


def test_what_a_search_takes_is_planned_from_above() -> None:
    context = load_context(
        campaign(
            cases=[{**SEARCH, "max_s": 90}],
            slo={"ttft_s": 1},
            phases=[{"id": "phase1", "cases": ["s"]}],
        )
    )
    assert {row.expected_s for row in planned_repeats(context)} == {90}
    case = context.plan.cases["s"]
    assert case_bytes(case, 1024) > 16 * 100 * 800


def test_a_curves_point_is_measured_as_a_case_of_its_own() -> None:
    """It replays nothing, and a milestone asks for its repeats."""
    plan = planned(CURVE)
    assert [replayed(plan.campaign, name) for name in plan.cases] == [None, None]
    said = refused(CURVE, phases=[{"id": "phase1", "cases": ["k"], "milestone": True}])
    assert "2 repeats of case 'k-c1' are planned" in said
