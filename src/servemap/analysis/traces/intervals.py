"""Arithmetic on sets of intervals: integer ns, half open, numpy arrays of starts and ends."""

from typing import NamedTuple

import numpy as np

from servemap.parsers.traces.table import Ints

_TIMES_AT_ONCE = 1 << 16


class Spans(NamedTuple):
    """Disjoint intervals in order of time; none is empty and none touches the next."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        """Length of all intervals together, ns."""
        return int((self.end - self.start).sum())


EMPTY = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Ints, end: Ints) -> Spans:
    """Return the set that any of the given intervals covers; they may overlap in any way."""
    some = end > start
    if not some.all():
        start, end = start[some], end[some]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    return Spans(start[opens], reach[np.concatenate((opens[1:], [True]))])


def measure_before(spans: Spans, times: Ints) -> Ints:
    """Return for each time how much of the set lies before it, ns."""
    found = np.zeros(len(times), np.int64)
    if not len(spans.start):
        return found
    sums = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    # In parts, so that what is worked out on the way stays small.
    for low in range(0, len(times), _TIMES_AT_ONCE):
        some = times[low : low + _TIMES_AT_ONCE]
        last = np.searchsorted(spans.start, some, side="right") - 1
        inside = np.maximum(last, 0)
        part = np.minimum(some, spans.end[inside]) - spans.start[inside]
        found[low : low + _TIMES_AT_ONCE] = np.where(last < 0, 0, sums[inside] + part)
    return found


def within(spans: Spans, start: Ints, end: Ints) -> Ints:
    """Return for each interval how much of it the set covers, ns."""
    end = np.maximum(start, end)
    return measure_before(spans, end) - measure_before(spans, start)


def overlap(one: Spans, other: Spans) -> int:
    """Return the length of what both sets cover, ns."""
    return int(within(one, other.start, other.end).sum())


def gaps(spans: Spans) -> Spans:
    """Return what lies between the first and the last interval and is not covered."""
    return Spans(spans.end[:-1], spans.start[1:])


def joined(spans: Spans, most: int) -> Spans:
    """Return at most so many intervals: those with the shortest gaps between them are made one."""
    if len(spans.start) <= most:
        return spans
    kept = np.sort(np.argsort(spans.end[:-1] - spans.start[1:], kind="stable")[: most - 1])
    start = np.concatenate((spans.start[:1], spans.start[kept + 1]))
    return Spans(start, np.concatenate((spans.end[kept], spans.end[-1:])))


def clip(spans: Spans, start: int, end: int) -> Spans:
    """Return the part of the set that lies between two times."""
    return union(np.maximum(spans.start, start), np.minimum(spans.end, end))


def owned(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return for each interval the part that none which began earlier covers, in the given order.

    The parts are disjoint and together are the union. Of two that begin together the earlier row
    owns the time. A part that is empty has equal ends.
    """
    order = np.argsort(start, kind="stable")
    reach = end[order]
    np.maximum.accumulate(reach, out=reach)
    ordered = start[order]
    np.maximum(ordered[1:], reach[:-1], out=ordered[1:])
    begin = np.empty_like(start)
    begin[order] = ordered
    return begin, np.maximum(begin, end)
