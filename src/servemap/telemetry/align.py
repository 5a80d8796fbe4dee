"""Samples of many nodes on one clock, cut to the measured segments.

Times are put on the head's clock with what was measured of each node's (`telemetry.clock`). A rate
belongs to the interval that it was computed over and carries the interval's end as its time; it
counts as inside a segment only when the whole interval is, so nothing that happened before or after
the measured window enters a statistic. One sample on either side of a segment is kept, marked as
outside, so that a plot reaches the segment's edges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from servemap.parsers.records import Sample
from servemap.telemetry.clock import NodeClock

LEAST_INTERVALS = 3


class Segment(NamedTuple):
    """A measured interval, epoch nanoseconds on the head's clock."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


class AlignedRow(NamedTuple):
    """One row of telemetry.parquet; `inside` says whether statistics may use it.

    `from_ns` is where the interval of a rate begins; it is not stored.
    """

    node: str
    collector: str
    entity: str
    metric: str
    unit: str
    t_ns: int
    value: float
    segment: str
    inside: bool
    from_ns: int | None = None


class Coverage(NamedTuple):
    """How much of a segment a collector saw.

    `coverage` is samples over expected ones (duration / interval), at most 1; None where the
    segment is shorter than three intervals (`too_short`), since it says nothing there.
    `largest_gap_s` is the longest stretch of the segment without a sample, from edge to edge.
    """

    node: str
    collector: str
    segment: str
    samples: int
    expected: float
    coverage: float | None
    largest_gap_s: float
    too_short: bool


def align(
    node: str,
    collector: str,
    samples: Iterable[Sample],
    clock: NodeClock,
    segments: Sequence[Segment],
) -> list[AlignedRow]:
    """Return the samples of one collector in and around each segment, in time order."""
    series: dict[tuple[str, str, str], list[Sample]] = {}
    for sample in samples:
        series.setdefault((sample.entity, sample.metric, sample.unit), []).append(sample)
    rows: list[AlignedRow] = []
    for (entity, metric, unit), values in series.items():
        values.sort(key=lambda sample: sample.t_ns)
        times = [clock.to_head(sample.t_ns) for sample in values]
        for segment in segments:
            first = max(bisect_left(times, segment.start_ns) - 1, 0)
            last = min(bisect_right(times, segment.end_ns) + 1, len(values))
            for t_ns, sample in zip(times[first:last], values[first:last], strict=True):
                begin = t_ns if sample.from_ns is None else clock.to_head(sample.from_ns)
                inside = segment.start_ns <= begin and t_ns <= segment.end_ns
                rows.append(
                    AlignedRow(
                        node,
                        collector,
                        entity,
                        metric,
                        unit,
                        t_ns,
                        sample.value,
                        segment.name,
                        inside,
                        None if sample.from_ns is None else begin,
                    )
                )
    return rows


def coverage(
    node: str,
    collector: str,
    times_ns: Iterable[int],
    clock: NodeClock,
    interval_s: float,
    segment: Segment,
) -> Coverage:
    """Return how well the samples taken at `times_ns` (the node's clock) cover a segment."""
    times = sorted(map(clock.to_head, times_ns))
    inside = times[bisect_left(times, segment.start_ns) : bisect_right(times, segment.end_ns)]
    expected = segment.duration_s / interval_s
    too_short = expected < LEAST_INTERVALS
    ratio = None if too_short else min(len(inside) / expected, 1.0)
    gap = _largest_gap_s(times, segment)
    return Coverage(node, collector, segment.name, len(inside), expected, ratio, gap, too_short)


def _largest_gap_s(times: Sequence[int], segment: Segment) -> float:
    """Longest stretch of the segment in which nothing was sampled."""
    first = bisect_left(times, segment.start_ns)
    last = bisect_right(times, segment.end_ns)
    marks = [segment.start_ns, *times[first:last], segment.end_ns]
    return max(b - a for a, b in pairwise(marks)) / 1e9
