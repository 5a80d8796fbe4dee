"""The number in flight: its integral, the steady part of a closed loop, Little's law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.checks.in_flight import engine_in_flight, mean_in_flight, steady_part
from tests.plain_align import AlignedRow, as_series

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))),
    max_size=12,
)


@given(INTERVALS, st.integers(0, 60), st.integers(1, 40))
def test_the_mean_is_the_count_at_every_moment_on_average(intervals, begin, length):
    end = begin + length
    counted = [sum(a <= t < b for a, b in intervals) for t in range(begin, end)]
    assert mean_in_flight(intervals, begin, end) == pytest.approx(sum(counted) / length)


@given(INTERVALS, st.integers(0, 59), st.integers(1, 60), st.integers(1, 10**9))
def test_the_unit_of_time_does_not_matter(intervals, begin, length, scale):
    scaled = [(a * scale, b * scale) for a, b in intervals]
    mean = mean_in_flight(scaled, begin * scale, (begin + length) * scale)
    assert mean == pytest.approx(mean_in_flight(intervals, begin, begin + length))


@given(INTERVALS)
def test_littles_law_holds_where_everything_lies_in_the_window(intervals):
    """L = lambda W: the integral is the rate times the mean length (Little 1961)."""
    mean = mean_in_flight(intervals, 0, 60)
    if not intervals:
        assert mean == 0
        return
    rate, length = len(intervals) / 60, sum(b - a for a, b in intervals) / len(intervals)
    assert mean == pytest.approx(rate * length)


def test_no_time_has_no_mean():
    assert mean_in_flight([(0, 9)], 5, 5) is None


@given(st.integers(1, 8), st.integers(1, 60), st.randoms(use_true_random=False))
def test_a_closed_loop_without_pauses_holds_its_concurrency(slots, requests, random):
    """Whatever the lengths, between the first end and the last send every slot is taken."""
    free = [0] * min(slots, requests)
    intervals = []
    for _ in range(requests):
        slot = min(range(len(free)), key=free.__getitem__)
        end = free[slot] + random.randint(1, 50)
        intervals.append((free[slot], end))
        free[slot] = end
    part = steady_part(intervals)
    if requests <= slots:
        assert part == (requests, None, None, 0)
        return
    assert part.excluded == slots
    assert part.sent == requests - slots
    mean = mean_in_flight(intervals, part.begin_ns, part.end_ns)
    assert mean is None or mean == pytest.approx(slots)


def test_sixteen_long_prompts_that_come_at_once_average_half():
    """One after the other, 1 s each: 16, 15, ... 1 in flight. Right, and no steady part."""
    wave = [(0, second) for second in range(1, 17)]
    assert mean_in_flight(wave, 0, 16) == pytest.approx(8.5)
    assert steady_part(wave).begin_ns is None


def test_the_engines_own_count_needs_some_samples():
    def rows(count):
        return as_series(
            AlignedRow("n", "engine_metrics", "server", metric, "1", t, value, "main", True)
            for t in range(count)
            for metric, value in (("vllm:num_requests_running", 3.0),
                                  ("vllm:num_requests_waiting", float(t % 2)))
        )  # fmt: skip

    assert engine_in_flight(rows(10)) == {"main": 3.5}
    assert engine_in_flight(rows(9)) == {}
