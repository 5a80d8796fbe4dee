from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.records import Sample
from servemap.telemetry.align import Segment, align, coverage
from servemap.telemetry.clock import NodeClock

S = 1_000_000_000
HEAD = NodeClock()
MAIN = Segment("main", 10 * S, 20 * S)


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


def test_coverage_counts_samples_inside():
    row = coverage("head", "proc", [t * S for t in range(8, 23)], HEAD, 1.0, MAIN)
    assert (row.samples, row.expected, row.coverage, row.too_short) == (11, 10.0, 1.0, False)
    assert row.largest_gap_s == 1.0


def test_a_hole_shows_in_coverage_and_gap():
    times = [t * S for t in (10, 11, 12, 18, 19, 20)]
    row = coverage("head", "proc", times, HEAD, 1.0, MAIN)
    assert (row.samples, row.coverage, row.largest_gap_s) == (6, 0.6, 6.0)


def test_no_sample_at_all_is_one_gap():
    row = coverage("head", "proc", [], HEAD, 1.0, MAIN)
    assert (row.samples, row.coverage, row.largest_gap_s) == (0, 0.0, 10.0)


def test_a_segment_shorter_than_three_intervals_has_no_coverage():
    row = coverage("head", "proc", [10 * S], HEAD, 5.0, MAIN)
    assert (row.too_short, row.coverage, row.samples) == (True, None, 1)


@given(st.lists(st.integers(0, 30 * S)), st.integers(-5 * S, 5 * S))
def test_inside_means_inside(times, offset):
    samples = [Sample(t, None, "e", "m", "u", 0.0) for t in times]
    rows = align("n", "c", samples, NodeClock(offset), [MAIN])
    inside = [r for r in rows if r.inside]
    assert len(inside) == sum(MAIN.start_ns <= t - offset <= MAIN.end_ns for t in times)
    assert len(rows) - len(inside) <= 2
    assert [r.t_ns for r in rows] == sorted(r.t_ns for r in rows)
