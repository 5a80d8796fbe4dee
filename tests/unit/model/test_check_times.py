"""Cases that last longer than their time, however fast the server is, are refused when planned."""

from typing import Any

import pytest

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from tests.fakes import campaign
from tests.unit.model.test_curves import planned

SHAPE = {"id": "k", "isl": 64, "osl": 8}
RATE = {**SHAPE, "kind": "rate"}
MIXED = {
    **SHAPE,
    "kind": "mixed",
    "background": {"isl": 8, "osl": 8, "concurrency": 2, "min_window_s": 200},
}
RATES = {**SHAPE, "kind": "curve", "num_prompts": 100}
SEARCH = {**SHAPE, "kind": "search", "over": "rate", "most": 8, "slo": {"ttft_s": 1}}


def mixed(**inject: Any) -> dict[str, Any]:
    case = {key: value for key, value in MIXED.items() if key not in ("isl", "osl")}
    return {**case, "inject": {"isl": 8, "osl": 1, **inject}}


TOO_LONG = [
    (RATE | {"rate_rps": 0.1, "num_prompts": 100}, 990),
    (RATES | {"rates_rps": [8, 0.1]}, 990),
    (SHAPE | {"concurrency": 2, "min_window_s": 601}, 601),
    (SEARCH | {"start": 0.125}, 792),
    (mixed(after_s=401), 601),
    (mixed(after_s=1, every_s=200, count=3), 601),
]


@pytest.mark.parametrize(("case", "least_s"), TOO_LONG)
def test_a_case_that_cannot_end_in_its_time_is_refused(case: dict[str, Any], least_s: int) -> None:
    with pytest.raises(ConfigError) as error:
        planned(case)
    assert error.value.what == f"the case takes {least_s} s at least, case_timeout_s is 600"
    assert error.value.where.endswith(".case_timeout_s")
    assert error.value.remedy.startswith("raise it, or ")


@pytest.mark.parametrize(("case", "_least_s"), TOO_LONG)
def test_a_record_of_an_earlier_run_is_read_as_it_is(case: dict[str, Any], _least_s: int) -> None:
    phases = [{"id": "phase1", "cases": [case["id"]]}]
    assert load_context(campaign(cases=[case], phases=phases), traces=False).plan.cases


@pytest.mark.parametrize(("case", "least_s"), TOO_LONG)
def test_a_case_that_can_is_planned(case: dict[str, Any], least_s: int) -> None:
    planned(case | {"case_timeout_s": least_s})
