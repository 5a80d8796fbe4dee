"""Which operator of the host each piece of device work was launched for."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from servemap.parsers.traces.table import EventTable, Ints, Kind

NOT_TRACED = "(launch not traced)"
TOP_OPERATORS = 30

_LOOKED_BACK = 64
"""Operators that ended before a call and are passed over on the way to the one around it."""


@dataclass(frozen=True)
class OperatorTime:
    """Exposed device time of what one operator launched; `pieces` counts kernels and copies.

    Work that no operator launched stands under the name of the call that did, such as a graph's
    launch, in brackets.
    """

    name: str
    pieces: int
    exposed_ns: int


def innermost(events: EventTable, calls: Ints) -> Ints:
    """Return for each call's row the row of the innermost operator around it, -1 for none."""
    found = np.full(len(calls), -1, np.int64)
    operators = events.kind == Kind.OPERATOR
    for lane in np.unique(events.lane[calls[calls >= 0]]):
        rows = np.flatnonzero(operators & (events.lane == lane))
        if not len(rows):
            continue
        # Of two that begin together the outer one comes first, so the inner one is met first.
        rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
        mine = np.flatnonzero((calls >= 0) & (events.lane[np.maximum(calls, 0)] == lane))
        when = events.start[calls[mine]]
        at = np.searchsorted(events.start[rows], when, side="right") - 1
        for _ in range(_LOOKED_BACK):
            open_ = at >= 0
            mine, when, at = mine[open_], when[open_], at[open_]
            around = events.end[rows[at]] > when
            found[mine[around]] = rows[at[around]]
            mine, when, at = mine[~around], when[~around], at[~around] - 1
            if not len(mine):
                break
    return found


def operator_times(events: EventTable, calls: Ints, exposed: Ints) -> list[OperatorTime]:
    """Return the operators with the most exposed device time; one call and time for each piece."""
    around = innermost(events, calls)
    pieces: Counter[str] = Counter()
    times: Counter[str] = Counter()
    ids = np.where(
        around >= 0,
        events.name[np.maximum(around, 0)],
        np.where(calls >= 0, -2 - events.name[np.maximum(calls, 0)], -1),
    )
    names, at = np.unique(ids, return_inverse=True)
    sums = np.bincount(at, weights=exposed, minlength=len(names)).astype(np.int64)
    for name, count, ns in zip(
        names.tolist(), np.bincount(at, minlength=len(names)).tolist(), sums.tolist(), strict=True
    ):
        said = NOT_TRACED
        if name >= 0:
            said = events.names[name]
        elif name < -1:
            said = f"({events.names[-2 - name]})"
        pieces[said] += count
        times[said] += ns
    return [OperatorTime(name, pieces[name], ns) for name, ns in times.most_common(TOP_OPERATORS)]
