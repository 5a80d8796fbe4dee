"""What may be said of a change between two variants, and of one over time."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import build_repeat, request

from servemap.analysis.compare import TOO_FEW, compare
from servemap.analysis.derive import derive_attempt
from servemap.analysis.drift import drift
from servemap.analysis.noise import Repeats, repeats
from servemap.analysis.summary import summarize

QUIET = repeats([99.0, 100.0, 101.0])


def group(mean: float, cv: float, n: int = 3) -> Repeats:
    return Repeats(n, mean, cv, None, None)


def test_the_interval_is_welchs_by_hand() -> None:
    """CV 1 % and 2 % of three each: t of 2.9412 degrees is 3.21876."""
    found = compare(group(100.0, 0.01), group(90.0, 0.02), more_is_better=True)
    assert found is not None
    assert found.effect_pct == pytest.approx(-10.0)
    half = 0.9 * 3.21876 * math.sqrt(0.01**2 / 3 + 0.02**2 / 3) * 100
    assert found.low_pct == pytest.approx(-10 - half, abs=1e-4)
    assert found.high_pct == pytest.approx(-10 + half, abs=1e-4)
    assert found.floor_pct == pytest.approx(3.7610603 * math.sqrt(2.5e-4) * math.sqrt(2 / 3) * 100)
    assert found.decision == "worse"


@pytest.mark.parametrize(
    ("after", "more_is_better", "decision"),
    [
        (group(110.0, 0.01), True, "better"),
        (group(110.0, 0.01), False, "worse"),
        (group(90.0, 0.01), False, "better"),
        (group(102.0, 0.01), True, "not resolved"),
        (group(110.0, 0.09), True, "not resolved"),
        (Repeats(1, 150.0, None, None, None), True, "no noise floor"),
    ],
)
def test_decisions(after: Repeats, more_is_better: bool, decision: str) -> None:
    for before in (QUIET, group(100.0, 0.01)):
        found = compare(before, after, more_is_better)
        assert found is not None
        assert found.decision == decision
        assert (found.floor_pct is None) == (decision == "no noise floor")


def test_an_effect_below_the_floor_is_not_resolved_though_its_interval_leaves_out_0() -> None:
    found = compare(group(100.0, 0.01), group(97.3, 0.01), more_is_better=True)
    assert found is not None and found.high_pct is not None and found.floor_pct is not None
    assert found.high_pct < 0
    assert abs(found.effect_pct) < found.floor_pct
    assert found.decision == "not resolved"


def test_repeats_that_are_alike_to_the_last_digit_do_not_resolve_less_than_1_percent() -> None:
    still = repeats([100.0] * 3)
    tiny = compare(still, repeats([100.5] * 3), more_is_better=True)
    large = compare(still, repeats([102.0] * 3), more_is_better=True)
    assert tiny is not None and large is not None
    assert (tiny.floor_pct, tiny.decision, large.decision) == (1.0, "not resolved", "better")


def test_an_interval_of_more_than_everything_says_nothing() -> None:
    found = compare(repeats([100.0, 900.0, 200.0]), repeats([300.0, 350.0, 340.0]), True)
    assert found is not None
    assert (found.low_pct, found.high_pct) == (None, None)
    assert (found.decision, found.reason) == ("not resolved", TOO_FEW)


def test_a_loss_that_is_resolved_ends_at_everything() -> None:
    found = compare(group(100.0, 0.01), group(5.0, 0.42), more_is_better=True)
    assert found is not None and found.high_pct is not None
    assert found.low_pct == -100.0
    assert -100 < found.effect_pct < found.high_pct < 0
    assert (found.decision, found.reason) == ("worse", "")


def test_repeats_that_are_all_zero_have_a_spread_and_so_a_noise_floor() -> None:
    """A cache that hits nothing any more: the CV is 0 / 0, the change is no matter of noise."""
    found = compare(repeats([0.70, 0.75, 0.74]), repeats([0.0] * 3), more_is_better=True)
    assert found is not None and found.floor_pct is not None
    assert (found.effect_pct, found.low_pct, found.high_pct) == (-100.0, -100.0, -100.0)
    assert 1 < found.floor_pct < 100
    assert (found.decision, found.reason) == ("worse", "")
    once = compare(repeats([0.7, 0.75]), repeats([0.0]), more_is_better=True)
    assert once is not None
    assert (once.decision, once.reason) == ("no noise floor", "a single repeat on one side")


def test_nothing_is_said_without_a_figure() -> None:
    nothing = repeats([])
    assert compare(nothing, QUIET, True) is None
    assert compare(QUIET, nothing, True) is None
    assert compare(repeats([0.0, 0.0]), QUIET, True) is None


VALUES = st.lists(st.floats(1, 1e4), min_size=2, max_size=8)


@given(VALUES, VALUES, st.booleans())
def test_a_decision_follows_from_effect_interval_and_floor(
    before: list[float], after: list[float], more: bool
) -> None:
    found = compare(repeats(before), repeats(after), more)
    assert found is not None and found.floor_pct is not None and found.floor_pct >= 1
    if found.low_pct is None or found.high_pct is None:
        assert (found.reason, found.decision) == (TOO_FEW, "not resolved")
        return
    assert -100 <= found.low_pct <= found.effect_pct <= found.high_pct
    opposite = compare(repeats(before), repeats(after), not more)
    assert opposite is not None
    swapped = {"better": "worse", "worse": "better"}
    assert opposite.decision == swapped.get(found.decision, found.decision)
    if found.decision in swapped:
        assert found.low_pct > 0 or found.high_pct < 0
        assert abs(found.effect_pct) >= found.floor_pct


def measured(run: Any, variant: str, repeat: int, end_ms: float) -> dict[str, Any]:
    records = [request(i, sent_ms=500.0 * i) for i in range(4)]
    folder = build_repeat(
        run,
        variant=variant,
        repeat=repeat,
        requests=records,
        segments=[("main", 0.0, end_ms)],
    )
    derive_attempt(folder, {})
    allowed = [] if variant == "a" else ["a"]
    return {"variant": variant, "case": "decode_c2", "repeat": repeat, "compared_with": allowed}


def test_a_file_for_each_comparison_and_none_that_no_plan_has(tmp_path: Any) -> None:
    run = tmp_path / "run"
    rows = [
        measured(run, variant, repeat, end * factor)
        for variant, factor in (("a", 1.0), ("b", 1.25))
        for repeat, end in enumerate((1990.0, 2000.0, 2010.0), 1)
    ]
    summarize(run, rows)
    (path,) = (run / "comparisons").iterdir()
    assert path.name == "a__b.json"
    found = json.loads(path.read_text())
    assert (found["schema"], found["before"], found["after"]) == (1, "a", "b")
    (case,) = found["cases"]
    assert (case["case"], case["n_before"], case["n_after"]) == ("decode_c2", 3, 3)
    assert (case["starts_before"], case["starts_after"]) == (1, 1)
    tps = case["figures"]["agg_output_tps"]
    assert tps["effect_pct"] == pytest.approx(-20, abs=0.1)
    assert tps["decision"] == "worse"
    assert case["figures"]["ttft_p95_ms"]["decision"] == "not resolved"
    summarize(run, rows[:3])
    assert list((run / "comparisons").iterdir()) == []


def row(case: str, start_ns: int | None, tps: float, verdict: str = "valid") -> dict[str, Any]:
    return {
        "case": case,
        "start_ns": start_ns,
        "agg_output_tps": tps,
        "verdict": verdict,
        "lengths": "planned",
    }


S = 10**9


def test_drift_goes_by_time_and_leaves_out_what_is_not_valid() -> None:
    found = drift(
        [
            row("a", 30 * S, 90.0),
            row("a", 10 * S, 100.0),
            row("a", 20 * S, 70.0),
            row("a", 40 * S, 10.0, verdict="invalid"),
            row("a", None, 10.0),
            row("b", 11 * S, 50.0),
        ]
    )
    (only,) = found.cases
    assert (only.case, only.n, only.first, only.last) == ("a", 3, 100.0, 90.0)
    assert (only.change_pct, only.apart_s) == (pytest.approx(-10.0), 20.0)
    assert found.seen is None


@pytest.mark.parametrize(
    ("lasts", "seen"),
    [((95.0, 94.0, 96.0), True), ((105.0, 94.0, 101.0), False), ((95.0, 94.0), None)],
)
def test_drift_is_what_the_cases_have_in_common(
    lasts: tuple[float, ...], seen: bool | None
) -> None:
    rows = [
        row(f"c{index}", (10 * turn + index) * S, value)
        for index, last in enumerate(lasts)
        for turn, value in enumerate((100.0, last))
    ]
    assert drift(rows).seen is seen
