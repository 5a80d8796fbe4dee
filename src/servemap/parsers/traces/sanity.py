"""Events that cannot be true beside all the others are left out, and counted."""

from collections import Counter
from pathlib import Path

import numpy as np

from servemap.model.errors import ParseError
from servemap.parsers.traces.table import EventTable, Kind

_HOUR_NS = 3_600_000_000_000
_SECOND_NS = 1_000_000_000
_TIMES_LONGER = 10


def keep_sane(table: EventTable, skipped: Counter[str]) -> EventTable:
    """Return the rows that lie near the others in time; what is left out is added to `skipped`.

    A capture is a few steps long. An event that begins more than an hour from the middle one, or
    is longer than a second and than ten times the span of all others, would make every share of
    time meaningless.
    """
    if not len(table):
        return table
    if int(table.start.max()) - int(table.start.min()) >= _HOUR_NS:
        near = np.abs(table.start - int(np.median(table.start))) < _HOUR_NS
        skipped["more than an hour from all others"] += int((~near).sum())
        table = table.take(near)
    long = np.flatnonzero(table.end - table.start > _SECOND_NS)
    # What only frames other events, such as a profiler's step, may be long.
    long = long[table.kind[long] <= Kind.RUNTIME]
    if not len(long):
        return table
    good = table.kind != Kind.OTHER
    for row in long[np.argsort(table.start[long] - table.end[long])]:
        good[row] = False
        length = int(table.end[row] - table.start[row])
        span = int(table.end[good].max() - table.start[good].min()) if good.any() else length
        if length <= _TIMES_LONGER * span:
            good[row] = True
            break
    good |= table.kind == Kind.OTHER
    if good.all():
        return table
    skipped["impossibly long beside all others"] += int((~good).sum())
    return table.take(good)


def refuse_mixed(table: EventTable, path: Path) -> None:
    """Raise ParseError where one process makes the same calls twice at the same time.

    The profiler numbers the calls of a process. Numbers that come again later are another capture
    in the same file; numbers that come again in between are another rank with the same process id,
    and no time could be told to be of one or of the other.
    """
    calls = np.flatnonzero((table.kind == Kind.RUNTIME) & (table.correlation >= 0))
    order = calls[np.lexsort((table.start[calls], table.correlation[calls]))]
    key, start = table.correlation[order], table.start[order]
    again = np.flatnonzero(key[1:] == key[:-1]) + 1
    if not len(again):
        return
    first = np.setdiff1d(np.arange(len(order)), again)
    repeated = first[np.isin(key[first], key[again])]
    if len(repeated) * 2 >= len(first) and start[again].min() <= start[repeated].max():
        raise ParseError(
            "the file holds two captures or ranks with the same process ids, mixed in time",
            str(path),
            "give one file for each rank",
        )
