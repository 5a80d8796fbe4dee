"""Collectives of one rank in order, and which of them are the same one on other ranks."""

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.classes import class_kinds, classes_of
from servemap.parsers.traces.table import EventTable, Ints, Kind

_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)
_VARIANT = re.compile(r"_(RING|TREE|NVLS|COLLNET|PAT)\w*", re.IGNORECASE)


@dataclass(frozen=True)
class RankCollectives:
    """Start and end of each collective of a rank, epoch ns where the file has a base, by name."""

    calls: dict[str, tuple[Ints, Ints]]


@dataclass(frozen=True)
class Matched:
    """Collectives that all ranks took part in: arrays of shape (ranks, collectives), ns.

    `unmatched` counts collectives whose name did not come equally often on all ranks.
    """

    names: list[str]
    start: Ints
    end: Ints
    unmatched: int


def collective_name(name: str) -> str:
    """Return the part of a kernel's name that is the same on all ranks.

    Namespaces, template arguments and parameters go, and NCCL's algorithm and protocol, which
    ranks choose alike but versions spell differently.
    """
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    bare = _ARGUMENTS.sub("", bare).strip().rsplit("::", 1)[-1] if bare[:1] != "_" else bare
    return _VARIANT.sub("", bare) or name


def rank_collectives(events: EventTable, base_ns: int) -> RankCollectives:
    """Return the collectives of a trace: kernels, or operators where no device was traced."""
    on_device = bool((events.kind == Kind.KERNEL).any())
    rows = np.flatnonzero(events.kind == (Kind.KERNEL if on_device else Kind.OPERATOR))
    talks = np.array([kind == "communication" for kind in class_kinds()])
    rows = rows[talks[classes_of(events.names, events.name[rows])]]
    if not on_device:
        rows = _outermost(events, rows)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows.tolist():
        said = events.collectives.get(row)
        key = collective_name(events.names[events.name[row]])
        if said is not None:
            key = f"{said.name} in group {said.group}"
        found[key].append(row)
    return RankCollectives(
        {
            key: (events.start[mine] + base_ns, events.end[mine] + base_ns)
            for key, mine in ((key, np.array(rows)) for key, rows in found.items())
        }
    )


def _outermost(events: EventTable, rows: Ints) -> Ints:
    """Return the rows that lie within no other of the rows on their lane."""
    order = rows[np.lexsort((-events.end[rows], events.start[rows], events.lane[rows]))]
    kept: list[int] = []
    for row in order.tolist():
        outer = kept[-1] if kept else row
        inside = events.lane[outer] == events.lane[row] and events.end[row] <= events.end[outer]
        if outer == row or not inside:
            kept.append(row)
    return np.array(kept, np.int64)


def match(ranks: list[RankCollectives]) -> Matched:
    """Return the collectives that all ranks have, the k-th of a name being the same everywhere."""
    names: list[str] = []
    starts, ends = [], []
    unmatched = 0
    for key in dict.fromkeys(key for rank in ranks for key in rank.calls):
        calls = [rank.calls.get(key) for rank in ranks]
        counts = [0 if one is None else len(one[0]) for one in calls]
        present = [one for one in calls if one is not None]
        if len(set(counts)) > 1 or len(present) < len(ranks):
            unmatched += max(counts)
            continue
        names += [key] * counts[0]
        starts.append(np.stack([start for start, _ in present]))
        ends.append(np.stack([end for _, end in present]))
    if not names:
        empty = np.empty((len(ranks), 0), np.int64)
        return Matched([], empty, empty, unmatched)
    start, end = np.concatenate(starts, axis=1), np.concatenate(ends, axis=1)
    order = np.argsort(start.max(axis=0), kind="stable")
    return Matched([names[at] for at in order], start[:, order], end[:, order], unmatched)
