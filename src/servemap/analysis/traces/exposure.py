"""Exposed time: every instant in which a device works belongs to exactly one piece of work.

Compute comes first: communication owns only what no compute hides, copies only what neither
hides. Among work of one kind the piece that began earliest owns the time. So the parts of all
pieces sum up to the time in which the device is busy, and can be added by name, class or step.
"""

import numpy as np

from servemap.analysis.traces.classes import WorkKind
from servemap.analysis.traces.intervals import EMPTY, owned, union, within
from servemap.parsers.traces.table import Ints, Mask

KINDS: tuple[WorkKind, ...] = ("compute", "communication", "copy")


def exposed_times(start: Ints, end: Ints, is_kind: dict[WorkKind, Mask]) -> Ints:
    """Return the exposed time of each piece of one device's work, ns, in the given order."""
    exposed = np.zeros(len(start), np.int64)
    hiding = EMPTY
    for kind in KINDS:
        rows = is_kind[kind]
        begin, stop = owned(start[rows], end[rows])
        exposed[rows] = stop - begin - within(hiding, begin, stop)
        ours = union(start[rows], end[rows])
        hiding = union(
            np.concatenate((hiding.start, ours.start)), np.concatenate((hiding.end, ours.end))
        )
    return exposed
