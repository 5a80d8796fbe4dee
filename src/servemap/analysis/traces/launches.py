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
    found = np.full(len(device_rows), -1, np.int64)
    calls = calls[np.isin(events.correlation[calls], events.correlation[device_rows])]
    if not len(calls):
        return found
    calls = calls[np.lexsort((events.start[calls], events.correlation[calls]))]
    numbers, first = np.unique(events.correlation[calls], return_index=True)
    last = np.concatenate((first[1:], [len(calls)])) - 1
    group = np.searchsorted(numbers, events.correlation[device_rows])
    group = np.minimum(group, len(numbers) - 1)
    known = numbers[group] == events.correlation[device_rows]
    at = last[group]
    start = events.start[device_rows]
    while True:
        late = known & (at > first[group]) & (events.start[calls[at]] > start)
        if not late.any():
            break
        at = np.where(late, at - 1, at)
    found[known] = calls[at[known]]
    return found


def by_graph(events: EventTable, device_rows: Ints, calls: Ints) -> Mask:
    """Return which device rows a graph launched: the file says so, or the call's name does."""
    named = np.array([bool(_GRAPH.search(name)) for name in events.names], np.bool_)
    launched = np.zeros(len(device_rows), np.bool_)
    known = calls >= 0
    launched[known] = named[events.name[calls[known]]]
    return launched | events.in_graph[device_rows]
