"""The search's decisions: for any truth the largest level within bounds, within its limits."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from servemap.model.search import SAID, Bounds, Ended, Outcome, Probed, bracket, next_step

EXACT = Bounds(True, 1, 1024, 0, 99, 1e9)


def search(
    bounds: Bounds, truth: float, invalid: frozenset[int] = frozenset()
) -> tuple[float | None, list[Probed], Ended]:
    """Search where every level up to `truth` meets the SLO; some probes, by number, are invalid."""
    probes: list[Probed] = []
    while True:
        step = next_step(bounds, probes, float(len(probes)))
        if step.level is None:
            assert step.ended is not None
            return bracket(probes)[0], probes, step.ended
        met: Outcome = "met" if step.level <= truth else "missed"
        outcome: Outcome = "invalid" if len(probes) in invalid else met
        probes.append(Probed(step.level, outcome))


@given(st.integers(0, 3000), st.integers(1, 1024), st.integers(1, 2000))
def test_the_largest_concurrency_is_found(truth: int, start: int, more: int) -> None:
    bounds = replace(EXACT, start=start, most=start + more)
    answer, probes, ended = search(bounds, truth)
    if truth < 1:
        assert (answer, ended) == (None, "none")
    elif truth >= bounds.most:
        assert (answer, ended) == (bounds.most, "most")
    else:
        assert (answer, ended) == (truth, "converged")
    levels = [probe.level for probe in probes]
    assert len(set(levels)) == len(levels), "no level is probed twice"
    assert all(1 <= level <= bounds.most and level == int(level) for level in levels)


@given(
    st.floats(0.01, 3000),
    st.floats(0.01, 1000),
    st.floats(1, 50),
    st.floats(0.001, 0.5),
    st.booleans(),
)
def test_an_answer_is_as_close_as_it_was_asked(
    truth: float, start: float, factor: float, tolerance: float, whole: bool
) -> None:
    first = float(max(1, int(start))) if whole else start
    most = float(int(first * factor)) if whole else first * factor
    bounds = Bounds(whole, first, most, tolerance, 99, 1e9)
    answer, probes, ended = search(bounds, truth)
    missed = bracket(probes)[1]
    if ended == "converged":
        assert answer is not None and missed is not None
        assert answer <= truth < missed
        assert missed - answer <= max(1 if whole else 0, tolerance * answer)
    else:
        assert ended in ("most", "none")
        assert answer == (most if ended == "most" else None)


@given(st.integers(1, 1024), st.integers(1, 30), st.integers(0, 30))
def test_never_more_probes_or_time_than_allowed(truth: int, probes: int, seconds: int) -> None:
    answer, made, ended = search(replace(EXACT, max_probes=probes, max_s=seconds), truth)
    assert len(made) <= min(probes, seconds)
    if ended in ("probes", "time"):
        assert ended == ("probes" if len(made) >= probes else "time")
        assert answer is None or answer <= truth
    else:
        assert answer == truth


@given(st.integers(0, 3000), st.frozensets(st.integers(0, 30)))
def test_an_invalid_probe_says_nothing(truth: int, invalid: frozenset[int]) -> None:
    answer, probes, ended = search(EXACT, truth, invalid)
    if ended == "invalid":
        assert probes[-1] == probes[-2] and probes[-1].outcome == "invalid"
        assert answer is None or answer <= truth
    else:
        assert answer == search(EXACT, truth)[0]
    again = [b.level == a.level for a, b in pairwise(probes) if a.outcome == "invalid"]
    assert all(again), "the level of an invalid probe is tried once more"


@given(st.lists(st.tuples(st.integers(1, 64), st.sampled_from(["met", "missed"])), max_size=30))
def test_an_answer_lies_below_all_that_missed(made: list[tuple[int, Outcome]]) -> None:
    probes = [Probed(level, outcome) for level, outcome in made]
    answer, missed = bracket(probes)
    assert answer is None or missed is None or answer < missed
    assert all(p.level >= missed for p in probes if p.outcome == "missed" and missed is not None)


def test_every_end_is_said_in_words() -> None:
    assert set(SAID) == set(Ended.__args__)  # type: ignore[attr-defined]
    bounded = {"most", "probes", "time", "invalid"}
    assert {ended for ended, said in SAID.items() if "lower bound" in said} == bounded
