"""At which numbers in flight the client's error is measured."""

from typing import Any

import pytest

from servemap.model.calibration import LADDER, MOST
from servemap.model.plan import Plan
from tests.unit.model.test_resolve_plan import campaign

LENGTHS = {"isl": 8, "osl": 8}


def of(*cases: dict[str, Any], **keys: Any) -> Plan:
    named = [{"id": f"c{number}", **case} for number, case in enumerate(cases)]
    phases = [{"id": "phase1", "cases": [case["id"] for case in named]}]
    return Plan(campaign(cases=named, phases=phases, baselines=[], **keys))


@pytest.mark.parametrize(
    ("case", "counts"),
    [
        ({"concurrency": 5}, [5]),
        ({"kind": "prefix", "share": 0.5, "concurrency": 7}, [7]),
        ({"kind": "chat", "concurrency": 3}, [3]),
        ({"kind": "rate", "rate_rps": 4, "num_prompts": 10_000}, list(LADDER)),
        ({"kind": "rate", "rate_rps": 4, "num_prompts": 40}, [16, 40]),
        ({"kind": "rate", "rate_rps": 4, "num_prompts": 2}, [2]),
        ({"concurrency": MOST}, [MOST]),
        ({"concurrency": MOST + 1}, []),
    ],
)
def test_of_one_case(case: dict[str, Any], counts: list[int]) -> None:
    assert of({**LENGTHS, **case}).calibrated == counts


def test_a_mixed_case_has_its_injection_beside_the_background() -> None:
    background = {**LENGTHS, "concurrency": 16}
    mixed = {"kind": "mixed", "background": background, "inject": {**LENGTHS, "after_s": 1}}
    assert of(mixed).calibrated == [17]


def test_distinct_and_ascending() -> None:
    counts = [64, 1, 16, 1]
    assert of(*({**LENGTHS, "concurrency": count} for count in counts)).calibrated == [1, 16, 64]


def test_another_load_client_has_an_error_of_its_own() -> None:
    cases = {"concurrency": 4, "client": "vllm-bench"}, {"concurrency": 2}
    clients = {"vllm-bench": {"python": "/usr/bin/python3"}}
    assert of(*({**LENGTHS, **case} for case in cases), clients=clients).calibrated == [2]


def test_its_spec_changes_with_the_numbers_and_the_node_only() -> None:
    one = of({**LENGTHS, "concurrency": 2})
    longer = of({"isl": 9, "osl": 9, "concurrency": 2}, slo={"ttft_s": 1})
    other = of({**LENGTHS, "concurrency": 3})
    elsewhere = of({**LENGTHS, "concurrency": 2}, load_node="n2")
    assert longer.spec("calibrate") == one.spec("calibrate")
    assert len({plan.spec("calibrate") for plan in (one, other, elsewhere)}) == 3


def test_it_can_be_left_out() -> None:
    plan = of({**LENGTHS, "concurrency": 2}, policy={"calibrate": False})
    assert plan.calibrated == []
    assert ("calibrate",) not in plan.sequence
