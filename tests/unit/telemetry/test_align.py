"""Cutting to segments: by hand, and against plain code that goes sample by sample."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.records import Sample
from servemap.parsers.series import series_of
from servemap.telemetry.align import MOST_GAPS, Coverage, Gap, Segment, coverage
from servemap.telemetry.align import align as align_series
from servemap.telemetry.clock import NodeClock
from tests.plain_align import plain_align, plain_coverage, rows_of

S = 1_000_000_000
HEAD = NodeClock()
MAIN = Segment("main", 10 * S, 20 * S)


def align(node, collector, samples, clock, segments):
    return rows_of(align_series(node, collector, series_of(samples), clock, segments))


def covered(times, interval_s=1.0) -> Coverage:
    (row,) = coverage("head", "proc", times, HEAD, interval_s, [MAIN])
    return row


def gauge(t, value=1.0):
    return Sample(int(t * S), None, "gpu0", "util", "percent", value)


def rate(begin, end):
    return Sample(int(end * S), int(begin * S), "eth0", "net_rx", "bytes_per_s", 1.0)


def seen(rows):
    return [(row.t_ns / S, row.inside) for row in rows]


def test_one_sample_either_side_is_kept_outside():
    rows = align("head", "proc", [gauge(t) for t in (7, 9, 10, 15, 20, 21, 23)], HEAD, [MAIN])
    assert seen(rows) == [(9, False), (10, True), (15, True), (20, True), (21, False)]


def test_a_rate_that_began_before_the_segment_is_outside():
    rows = align("head", "proc", [rate(t - 2, t) for t in (11, 13, 19, 21)], HEAD, [MAIN])
    assert seen(rows) == [(11, False), (13, True), (19, True), (21, False)]


def test_node_times_are_moved_to_the_heads_clock():
    rows = align("worker", "proc", [gauge(15)], NodeClock(3 * S), [MAIN])
    assert seen(rows) == [(12, True)]
    assert rows[0].node == "worker"


def test_a_sample_between_two_segments_belongs_to_neither():
    parts = [Segment("control", 10 * S, 12 * S), Segment("injected", 14 * S, 16 * S)]
    rows = align("head", "proc", [gauge(t) for t in (11, 13, 15)], HEAD, parts)
    assert [(r.segment, r.t_ns // S, r.inside) for r in rows] == [
        ("control", 11, True),
        ("control", 13, False),
        ("injected", 13, False),
        ("injected", 15, True),
    ]


def test_regular_samples_cover_all():
    row = covered([t * S for t in range(8, 23)])
    assert (row.samples, row.expected, row.coverage, row.too_short) == (11, 10.0, 1.0, False)
    assert (row.largest_gap_s, row.gaps) == (1.0, [])


def test_a_hole_shows_in_coverage_and_gap():
    row = covered([t * S for t in (10, 11, 12, 18, 19, 20)])
    assert (row.samples, row.coverage, row.largest_gap_s) == (6, 0.55, 6.0)
    assert row.gaps == [Gap(12 * S, 18 * S)]


def test_three_intervals_are_no_gap_and_a_little_more_is_one():
    assert covered([t * S for t in (10, 13, 16, 19, 20)]).gaps == []
    assert covered([10 * S, 13 * S, 16 * S + 1, 19 * S]).gaps == [Gap(13 * S, 16 * S + 1)]


def test_samples_of_one_moment_speak_for_it_once():
    row = covered([19 * S + n for n in range(60)])
    assert (row.samples, row.coverage) == (60, pytest.approx(0.15))


def test_twice_as_many_samples_in_half_of_the_time_cover_half():
    row = covered([10 * S + n * S // 2 for n in range(11)])
    assert (row.samples, row.coverage) == (11, 0.575)


@pytest.mark.parametrize("late_s", [0.0, 0.2, 0.5])
def test_late_samples_are_no_gap(late_s):
    times = [round((10.5 + n + late_s * (n % 2)) * S) for n in range(10)]
    assert covered(times).coverage > 0.95


@given(st.lists(st.integers(10 * S, 20 * S), min_size=1), st.lists(st.integers(10 * S, 20 * S)))
def test_more_samples_never_cover_less(times, more):
    assert 0 < covered(times).coverage <= covered(times + more).coverage <= 1


def test_what_lies_at_the_edges_of_a_segment_is_a_gap_too():
    row = covered([14 * S, 15 * S, 16 * S])
    assert row.gaps == [Gap(10 * S, 14 * S), Gap(16 * S, 20 * S)]


def test_of_very_many_gaps_the_longest_are_kept_in_order():
    lengths = [5 + n % 7 for n in range(3 * MOST_GAPS)]
    times = np.cumsum([0, *lengths]) * S
    (row,) = coverage("n", "c", times, HEAD, 1.0, [Segment("main", 0, int(times[-1]))])
    assert len(row.gaps) == MOST_GAPS
    assert row.gaps == sorted(row.gaps)
    assert min(gap.end_ns - gap.begin_ns for gap in row.gaps) == 9 * S


def test_no_sample_at_all_is_one_gap():
    row = covered([])
    assert (row.samples, row.coverage, row.largest_gap_s) == (0, 0.0, 10.0)
    assert row.gaps == [Gap(10 * S, 20 * S)]


def test_a_segment_shorter_than_three_intervals_has_no_coverage():
    row = covered([10 * S], 5.0)
    assert (row.too_short, row.coverage, row.samples) == (True, None, 1)


def test_series_that_share_their_times_are_cut_alike():
    times = np.arange(5, 25) * S
    (first,) = series_of([gauge(0)])
    both = [first._replace(metric=name, t_ns=times, value=times / S) for name in ("a", "b")]
    one, other = align_series("n", "c", both, HEAD, [MAIN])
    assert one.t_ns is other.t_ns
    assert one.value.tolist() == other.value.tolist() == list(range(9, 22))


@given(st.lists(st.integers(0, 30 * S)), st.integers(-5 * S, 5 * S))
def test_inside_means_inside(times, offset):
    samples = [Sample(t, None, "e", "m", "u", 0.0) for t in times]
    rows = align("n", "c", samples, NodeClock(offset), [MAIN])
    inside = [r for r in rows if r.inside]
    assert len(inside) == sum(MAIN.start_ns <= t - offset <= MAIN.end_ns for t in times)
    assert len(rows) - len(inside) <= 2
    assert [r.t_ns for r in rows] == sorted(r.t_ns for r in rows)


DRAWN = st.lists(
    st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(1, 9))), max_size=40
)
CLOCKS = st.builds(NodeClock, st.integers(-3, 3), st.just(0), st.just(0), st.just(0), st.just(0))


@given(DRAWN, CLOCKS)
def test_as_the_plain_code_has_it(drawn, clock):
    # A series is of gauges or of rates, as every parser makes them.
    samples = [
        Sample(t, None if gone is None else t - gone, f"e{t % 3}", str(gone is None), "u", float(n))
        for n, (t, gone) in enumerate(drawn)
    ]
    segments = [Segment("a", 5, 15), Segment("b", 15, 16), Segment("c", 30, 60)]
    found = align("n", "c", samples, clock, segments)
    assert found == plain_align("n", "c", samples, clock, segments)


@given(DRAWN, CLOCKS, st.integers(1, 9))
def test_coverage_as_the_plain_code_has_it(drawn, clock, interval):
    times = [t for t, _ in drawn]
    segments = [Segment("a", 5, 15), Segment("b", 15, 16), Segment("c", 30, 60)]
    for row in coverage("n", "c", times, clock, interval / 1e9, segments):
        segment = next(one for one in segments if one.name == row.segment)
        plain = plain_coverage(times, clock, interval / 1e9, segment)
        assert (row.samples, row.coverage, row.largest_gap_s) == pytest.approx(plain)


@given(st.lists(st.integers(0, 40), unique=True, max_size=40), st.randoms())
def test_the_order_of_samples_does_not_matter(times, chance: random.Random):
    samples = [Sample(t, None, "e", "m", "u", float(t)) for t in times]
    mixed = chance.sample(samples, len(samples))
    segments = [Segment("a", 5, 15), Segment("c", 20, 30)]
    assert align("n", "c", mixed, HEAD, segments) == align("n", "c", samples, HEAD, segments)
