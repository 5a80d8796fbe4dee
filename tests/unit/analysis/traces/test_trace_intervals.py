import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.traces.exposure import KINDS, exposed_times
from servemap.analysis.traces.intervals import (
    EMPTY,
    gaps,
    joined,
    measure_before,
    overlap,
    owned,
    union,
    within,
)

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=25)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([start for start, _ in pairs], np.int64)
    return start, start + np.array([length for _, length in pairs], np.int64)


def ticks(pairs: list[tuple[int, int]]) -> set[int]:
    """Every unit of time that is covered; the definition that the arithmetic must agree with."""
    return {tick for start, length in pairs for tick in range(start, start + length)}


@given(PAIRS)
def test_union_covers_what_any_covers(pairs: list[tuple[int, int]]) -> None:
    found = union(*arrays(pairs))
    assert found.total == len(ticks(pairs))
    assert (found.end > found.start).all() and (found.start[1:] > found.end[:-1]).all()
    covered = {tick for start, end in zip(*found, strict=True) for tick in range(start, end)}
    assert covered == ticks(pairs)


@given(PAIRS, PAIRS)
def test_overlap_is_what_both_cover(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    first, second = union(*arrays(one)), union(*arrays(other))
    both = len(ticks(one) & ticks(other))
    assert overlap(first, second) == overlap(second, first) == both
    assert union(*arrays(one + other)).total == first.total + second.total - both


@given(PAIRS, st.lists(st.integers(-5, 90), max_size=10))
def test_measure_before_counts_up_to_a_time(pairs: list[tuple[int, int]], times: list[int]) -> None:
    found = measure_before(union(*arrays(pairs)), np.array(times, np.int64))
    assert found.tolist() == [sum(tick < time for tick in ticks(pairs)) for time in times]


@given(PAIRS, PAIRS)
def test_within_is_the_covered_part_of_each(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    found = within(union(*arrays(one)), *arrays(other))
    assert found.tolist() == [len(ticks(one) & ticks([pair])) for pair in other]


@given(PAIRS)
def test_gaps_and_union_make_the_span(pairs: list[tuple[int, int]]) -> None:
    found = union(*arrays(pairs))
    if len(found.start):
        assert gaps(found).total + found.total == found.end[-1] - found.start[0]
    else:
        assert found == EMPTY and gaps(found).total == 0


@given(PAIRS)
def test_owned_parts_are_disjoint_and_make_the_union(pairs: list[tuple[int, int]]) -> None:
    start, end = owned(*arrays(pairs))
    assert (end >= start).all()
    parts = list(zip(start.tolist(), (end - start).tolist(), strict=True))
    assert sum(length for _, length in parts) == len(ticks(parts)) == len(ticks(pairs))
    for (begin, length), (own, part) in zip(pairs, parts, strict=True):
        assert part == 0 or begin <= own <= own + part <= begin + length


@given(PAIRS, st.data())
def test_exposed_parts_make_the_busy_time_and_kinds_hide_each_other(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    kinds = [data.draw(st.integers(0, 2)) for _ in pairs]
    rows = {
        name: np.array([kind == at for kind in kinds], np.bool_) for at, name in enumerate(KINDS)
    }
    start, end = arrays(pairs)
    found = exposed_times(start, end, rows)
    of = [
        ticks([pair for pair, kind in zip(pairs, kinds, strict=True) if kind == at])
        for at in range(3)
    ]
    assert int(found.sum()) == len(set().union(*of))
    exposed = [int(found[rows[name]].sum()) for name in KINDS]
    assert exposed == [len(of[0]), len(of[1] - of[0]), len(of[2] - of[0] - of[1])]
    # exposed = total - hidden
    compute, talk, _ = (union(start[rows[name]], end[rows[name]]) for name in KINDS)
    assert exposed[1] == talk.total - overlap(talk, compute)


@given(PAIRS, st.integers(1, 6))
def test_joined_sets_hold_all_and_lose_the_shortest_gaps(
    pairs: list[tuple[int, int]], most: int
) -> None:
    whole = union(*arrays(pairs))
    found = joined(whole, most)
    assert len(found.start) == min(len(whole.start), most)
    lengths = sorted((gaps(whole).end - gaps(whole).start).tolist(), reverse=True)
    assert gaps(found).total == sum(lengths[: most - 1])
    assert found.total + gaps(found).total == whole.total + gaps(whole).total


def test_a_set_by_hand() -> None:
    # [0,10) and [5,15) overlap, [15,20) touches, [30,31) stands alone.
    found = union(np.array([30, 5, 0, 15]), np.array([31, 15, 10, 20]))
    assert (found.start.tolist(), found.end.tolist()) == ([0, 30], [20, 31])
    assert (gaps(found).start.tolist(), gaps(found).end.tolist()) == ([20], [30])
