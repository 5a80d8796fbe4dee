"""Which host call launched a piece of device work."""

import re

import numpy as np

from servemap.parsers.traces.table import EventTable, Ints, Kind, Mask

_GRAPH = re.compile(r"Graph_?Launch", re.IGNORECASE)


def launching_calls(events: EventTable, device_rows: Ints) -> Ints:
    """Return for each device row the row of the host call that launched it, -1 if not traced.

    Both carry the same correlation number. Where a number comes again in a file, the last call
    that began before the work is meant.
    """
    calls = np.flatnonzero((events.kind == Kind.RUNTIME) & (events.correlation >= 0))
    numbers = events.correlation[calls]
    order = np.argsort(numbers, kind="stable")
    if (numbers[order[1:]] == numbers[order[:-1]]).any():
        order = np.lexsort((events.start[calls], numbers))
    calls, numbers = calls[order], numbers[order]
    wanted = events.correlation[device_rows]
    first = np.searchsorted(numbers, wanted)
    at = np.searchsorted(numbers, wanted, side="right") - 1
    known = at >= first
    while True:
        late = np.flatnonzero(at > first)
        late = late[events.start[calls[at[late]]] > events.start[device_rows[late]]]
        if not len(late):
            break
        at[late] -= 1
    found = np.full(len(device_rows), -1, np.int64)
    found[known] = calls[at[known]]
    return found


def by_graph(events: EventTable, device_rows: Ints, calls: Ints) -> Mask:
    """Return which device rows a graph launched: the file says so, or the call's name does."""
    named = np.array([bool(_GRAPH.search(name)) for name in events.names], np.bool_)
    launched = np.zeros(len(device_rows), np.bool_)
    known = calls >= 0
    launched[known] = named[events.name[calls[known]]]
    return launched | events.in_graph[device_rows]
