"""The parts of a measured segment: the whole, its overlap with an injection, the steady rest."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from servemap.analysis.chunks import touched
from servemap.parsers.series import Ints
from servemap.parsers.values import integer, sequence
from servemap.telemetry.align import Mask

WHOLE = "whole"
OVERLAP = "overlap"
STEADY = "steady"

Intervals = list[tuple[int, int]]


class Parts(NamedTuple):
    """A segment and the stretches of it in which injected requests were on their way; epoch ns."""

    start_ns: int
    end_ns: int
    overlaps: Intervals

    @property
    def names(self) -> tuple[str, ...]:
        """The parts that the segment has: without an injection the whole is all there is."""
        return (WHOLE, OVERLAP, STEADY) if self.overlaps else (WHOLE,)

    def seconds(self, part: str) -> float:
        """Return the length of a part."""
        return sum(end - begin for begin, end in self.stretches(part)) / 1e9

    def stretches(self, part: str) -> Intervals:
        """Return begins and ends of a part, in the order of time."""
        if part == OVERLAP:
            return self.overlaps
        if part == WHOLE:
            return [(self.start_ns, self.end_ns)]
        marks = [self.start_ns, *(mark for pair in self.overlaps for mark in pair), self.end_ns]
        return list(zip(marks[::2], marks[1::2], strict=True))

    def mask(self, part: str, begin_ns: Ints, end_ns: Ints) -> Mask:
        """Say of each interval, or moment where both ends are one, whether it is of a part.

        What has anything in common with an injection is of the overlap, so the steady rest is free
        of it, and each is of exactly one of the two.
        """
        if part == WHOLE or not self.overlaps:
            return np.full(end_ns.size, part in (WHOLE, STEADY))
        hit = touched(begin_ns, end_ns, self.overlaps)
        return hit if part == OVERLAP else ~hit


def parts_of(segment: Mapping[str, Any]) -> Parts | None:
    """Return the parts of a segment as metrics.json has it; None without its edges."""
    start, end = integer(segment.get("start_ns")), integer(segment.get("end_ns"))
    if start is None or end is None:
        return None
    pairs = [pair for pair in sequence(segment.get("overlaps")) if isinstance(pair, list)]
    known = [(integer(pair[0]), integer(pair[1])) for pair in pairs if len(pair) == 2]
    return Parts(start, end, [(a, b) for a, b in known if a is not None and b is not None])
