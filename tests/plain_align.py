"""Alignment sample by sample, as simply as it can be written: what the fast one is held against."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from servemap.parsers.records import Sample
from servemap.telemetry.align import LEAST_INTERVALS, AlignedSeries, Segment
from servemap.telemetry.clock import NodeClock


class AlignedRow(NamedTuple):
    """One sample in or around a segment."""

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


def plain_align(
    node: str,
    collector: str,
    samples: Iterable[Sample],
    clock: NodeClock,
    segments: Sequence[Segment],
) -> list[AlignedRow]:
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
                from_ns = None if sample.from_ns is None else begin
                what = (node, collector, entity, metric, unit)
                rows.append(AlignedRow(*what, t_ns, sample.value, segment.name, inside, from_ns))
    return rows


def plain_coverage(
    times_ns: Iterable[int], clock: NodeClock, interval_s: float, segment: Segment
) -> tuple[int, float | None, float]:
    """Return samples inside, the share of time that they speak for, and the longest gap (s)."""
    times = sorted(map(clock.to_head, times_ns))
    inside = [t for t in times if segment.start_ns <= t <= segment.end_ns]
    expected = segment.duration_s / interval_s
    reach = round(1.5 * interval_s * 1e9) // 2
    moments = range(segment.start_ns, segment.end_ns)
    seen = sum(any(t - reach <= moment < t + reach for t in inside) for moment in moments)
    ratio = None if expected < LEAST_INTERVALS else seen / len(moments)
    marks = [segment.start_ns, *inside, segment.end_ns]
    return len(inside), ratio, max(b - a for a, b in pairwise(marks)) / 1e9


def rows_of(series: Iterable[AlignedSeries]) -> list[AlignedRow]:
    """Return series sample by sample."""
    return [
        AlignedRow(
            *(one.node, one.collector, one.entity, one.metric, one.unit),
            *(t_ns, value, one.segment, inside, begin),
        )
        for one in series
        for t_ns, value, inside, begin in zip(
            one.t_ns.tolist(),
            one.value.tolist(),
            one.inside.tolist(),
            [None] * one.t_ns.size if one.from_ns is None else one.from_ns.tolist(),
            strict=True,
        )
    ]


def as_series(rows: Iterable[AlignedRow]) -> list[AlignedSeries]:
    """Return single samples as series, in the order in which each first came."""
    found: dict[tuple[str, ...], list[AlignedRow]] = {}
    for row in rows:
        key = (row.node, row.collector, row.entity, row.metric, row.unit, row.segment)
        found.setdefault(key, []).append(row)
    return [
        AlignedSeries(
            *key,
            t_ns=np.array([row.t_ns for row in own], np.int64),
            from_ns=None
            if own[0].from_ns is None
            else np.array([row.from_ns for row in own], np.int64),
            value=np.array([row.value for row in own], np.float64),
            inside=np.array([row.inside for row in own], np.bool_),
        )
        for key, own in found.items()
    ]
