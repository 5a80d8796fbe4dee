"""Exposed time: every instant in which a device works belongs to exactly one piece of work.

Compute comes first: communication owns only what no compute hides, copies only what neither
hides. Among work of one kind the piece that began earliest owns the time. So the parts of all
pieces sum up to the time in which the device is busy, and can be added by name, class or step.
"""

from typing import NamedTuple

import numpy as np

from servemap.analysis.traces.classes import WorkKind
from servemap.analysis.traces.intervals import Spans, owned, union, within
from servemap.parsers.traces.table import Ints, Mask

KINDS: tuple[WorkKind, ...] = ("compute", "communication", "copy")


class Exposure(NamedTuple):
    """`exposed` ns of each piece in the given order, and when each kind of work ran."""

    exposed: Ints
    spans: dict[WorkKind, Spans]
    busy: Spans


def exposure(start: Ints, end: Ints, is_kind: dict[WorkKind, Mask]) -> Exposure:
    """Return the exposed time of each piece of one device's work."""
    exposed = np.zeros(len(start), np.int64)
    spans: dict[WorkKind, Spans] = {}
    before = np.zeros(len(start), np.bool_)
    for kind in KINDS:
        rows = is_kind[kind]
        begin, stop = owned(start[rows], end[rows])
        hiding = union(start[before], end[before])
        exposed[rows] = stop - begin - within(hiding, begin, stop)
        spans[kind] = union(start[rows], end[rows])
        before |= rows
    return Exposure(exposed, spans, union(start, end))
