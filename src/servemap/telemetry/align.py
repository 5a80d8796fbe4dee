"""Samples of many nodes on one clock, cut to the measured segments.

Times are put on the head's clock with what was measured of each node's (`telemetry.clock`). A rate
belongs to the interval that it was computed over and carries the interval's end as its time; it
counts as inside a segment only when the whole interval is, so nothing that happened before or after
the measured window enters a statistic. One sample on either side of a segment is kept, marked as
outside, so that a plot reaches the segment's edges.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.parsers.series import Floats, Ints, Series
from servemap.telemetry.clock import NodeClock

LEAST_INTERVALS = 3
"""Of a shorter segment telemetry says nothing; a longer stretch without a sample is a gap."""
MOST_GAPS = 100
SPOKEN_INTERVALS = 1.5
"""A sample speaks for so much time at most: a later one than that leaves some of it unseen."""

Mask = NDArray[np.bool_]


class Segment(NamedTuple):
    """A measured interval, epoch nanoseconds on the head's clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class AlignedSeries(NamedTuple):
    """One metric of one entity in and around a segment; `inside` says what statistics may use.

    The arrays are of one length and in the order of time; `from_ns` is None for gauges.
    """

    node: str
    collector: str
    entity: str
    metric: str
    unit: str
    segment: str
    t_ns: Ints
    from_ns: Ints | None
    value: Floats
    inside: Mask


class Gap(NamedTuple):
    """A stretch of a segment without a sample; epoch nanoseconds on the head's clock."""

    begin_ns: int
    end_ns: int


class Coverage(NamedTuple):
    """How much of a segment a collector saw.

    `coverage` is the share of its time that samples speak for, each for three quarters of an
    interval on either side, so that samples that came together count once and late ones are no
    gap. None where the segment is shorter than three intervals (`too_short`), since it says nothing
    there. `samples` are those inside, `expected` is duration / interval.
    `largest_gap_s` is the longest stretch of the segment without a sample, from edge to edge.
    `gaps` are those longer than three intervals, in the order of time; of more than a hundred the
    longest.
    """

    node: str
    collector: str
    segment: str
    samples: int
    expected: float
    coverage: float | None
    largest_gap_s: float
    too_short: bool
    interval_s: float
    gaps: list[Gap]


class _Cut(NamedTuple):
    """What of a series lies in and around a segment."""

    segment: str
    first: int
    last: int
    t_ns: Ints
    from_ns: Ints | None
    inside: Mask


def align(
    node: str,
    collector: str,
    series: Iterable[Series],
    clock: NodeClock,
    segments: Sequence[Segment],
) -> list[AlignedSeries]:
    """Return the samples of one collector in and around each segment, in time order.

    A series without a sample there is left out. Arrays are views where nothing has to be sorted.
    """
    found: list[AlignedSeries] = []
    cuts: dict[tuple[int, int], tuple[Ints | None, list[_Cut]]] = {}
    kept: list[Series] = []
    for one in series:
        # Series that share their times share the work; who is kept cannot lend an id to another.
        key = id(one.t_ns), id(one.from_ns)
        if key not in cuts:
            kept.append(one)
            cuts[key] = _cuts(one, clock, segments)
        order, own = cuts[key]
        values = one.value if order is None else one.value[order]
        for cut in own:
            value = values[cut.first : cut.last]
            found.append(
                AlignedSeries(
                    node,
                    collector,
                    one.entity,
                    one.metric,
                    one.unit,
                    cut.segment,
                    cut.t_ns,
                    cut.from_ns,
                    value,
                    cut.inside,
                )
            )
    return found


def _cuts(
    one: Series, clock: NodeClock, segments: Sequence[Segment]
) -> tuple[Ints | None, list[_Cut]]:
    """Return the order that sorts a series by time, None where it is sorted, and its cuts."""
    order: Ints | None = None
    times, begins = one.t_ns, one.from_ns
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times = times[order]
        begins = None if begins is None else begins[order]
    times = clock.all_to_head(times)
    begins = None if begins is None else clock.all_to_head(begins)
    found = []
    for segment in segments:
        first = max(int(times.searchsorted(segment.start_ns, "left")) - 1, 0)
        last = min(int(times.searchsorted(segment.end_ns, "right")) + 1, times.size)
        if first >= last:
            continue
        t_ns = times[first:last]
        from_ns = None if begins is None else begins[first:last]
        inside = (t_ns if from_ns is None else from_ns) >= segment.start_ns
        inside &= t_ns <= segment.end_ns
        found.append(_Cut(segment.name, first, last, t_ns, from_ns, inside))
    return order, found


def coverage(
    node: str,
    collector: str,
    times_ns: Sequence[int] | Ints,
    clock: NodeClock,
    interval_s: float,
    segments: Sequence[Segment],
) -> list[Coverage]:
    """Return how well the samples taken at `times_ns` (the node's clock) cover each segment."""
    times = np.sort(clock.all_to_head(np.asarray(times_ns, np.int64)))
    rows = []
    for segment in segments:
        first, last = (
            times.searchsorted(segment.start_ns),
            times.searchsorted(segment.end_ns, "right"),
        )
        inside = times[first:last]
        expected = segment.duration_s / interval_s
        too_short = expected < LEAST_INTERVALS
        ratio = None
        if not too_short:
            seen_s = covered_s(inside, None, [(segment.start_ns, segment.end_ns)], interval_s)
            ratio = seen_s / segment.duration_s
        largest_s, gaps = gaps_of(inside, segment, interval_s)
        rows.append(
            Coverage(
                node,
                collector,
                segment.name,
                int(inside.size),
                expected,
                ratio,
                largest_s,
                too_short,
                interval_s,
                gaps,
            )
        )
    return rows


def covered_s(
    t_ns: Ints, from_ns: Ints | None, stretches: Sequence[tuple[int, int]], interval_s: float
) -> float:
    """Return the time (s) of stretches that samples speak for, each of at most 1.5 intervals.

    Args:
        t_ns: times of samples, in order.
        from_ns: where the intervals of rates begin, for which they speak; None for gauges, which
            speak for three quarters of an interval on either side.
        stretches: begins and ends that do not overlap.
        interval_s: between two samples, as asked for.
    """
    most_ns = round(SPOKEN_INTERVALS * interval_s * 1e9)
    if from_ns is None:
        begins, ends = t_ns - most_ns // 2, t_ns + most_ns // 2
    else:
        begins, ends = np.maximum(from_ns, t_ns - most_ns), t_ns
    total = 0
    for start, end in stretches:
        own_begins, own_ends = np.clip(begins, start, end), np.clip(ends, start, end)
        last = np.maximum.accumulate(own_ends)
        seen = np.concatenate(([start], last[:-1]))
        total += int(np.maximum(own_ends - np.maximum(own_begins, seen), 0).sum())
    return total / 1e9


def gaps_of(inside: Ints, segment: Segment, interval_s: float) -> tuple[float, list[Gap]]:
    """Return the longest stretch of a segment without a sample (s), and all that are gaps.

    Args:
        inside: times of samples inside the segment, in order.
        segment: the measured interval; its edges count.
        interval_s: between two samples, as asked for.
    """
    marks = np.concatenate(([segment.start_ns], inside, [segment.end_ns]))
    lengths = np.diff(marks)
    long = np.flatnonzero(lengths > LEAST_INTERVALS * interval_s * 1e9)
    if long.size > MOST_GAPS:
        long = np.sort(long[np.argsort(-lengths[long], kind="stable")[:MOST_GAPS]])
    gaps = [Gap(int(marks[at]), int(marks[at + 1])) for at in long]
    return float(lengths.max() / 1e9), gaps
