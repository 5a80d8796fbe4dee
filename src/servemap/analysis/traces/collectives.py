"""Collectives of one rank in order, and which of them are the same one on other ranks."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from servemap.analysis.traces.classes import class_kinds, classes_of
from servemap.analysis.traces.launches import launching_calls
from servemap.analysis.traces.steps import NO_STEP, Step, step_of
from servemap.parsers.traces.table import EventTable, Ints, Kind

NO_PHASE = "outside steps"

_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)
_VARIANT = re.compile(r"_(RING|TREE|NVLS|COLLNET|PAT)\w*", re.IGNORECASE)


class Calls(NamedTuple):
    """The calls of one collective on one rank in order of time, and the phases they belong to."""

    start: Ints
    end: Ints
    phases: list[str]


@dataclass(frozen=True)
class RankCollectives:
    """All collectives of a rank by name; epoch ns where the file has a base."""

    calls: dict[str, Calls]


@dataclass(frozen=True)
class Matched:
    """Collectives that all ranks took part in: arrays of shape (ranks, collectives), ns.

    `phases` are those of the first rank, `NO_PHASE` for a collective outside its steps.
    `unmatched` counts collectives whose name did not come equally often on all ranks.
    """

    names: list[str]
    start: Ints
    end: Ints
    unmatched: int
    phases: list[str]


def collective_name(name: str) -> str:
    """Return the part of a kernel's name that is the same on all ranks.

    Namespaces, template arguments and parameters go, and NCCL's algorithm and protocol, which
    ranks choose alike but versions spell differently.
    """
    bare = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    bare = _ARGUMENTS.sub("", bare).strip().rsplit("::", 1)[-1] if bare[:1] != "_" else bare
    return _VARIANT.sub("", bare) or name


def rank_collectives(events: EventTable, base_ns: int, steps: list[Step]) -> RankCollectives:
    """Return the collectives of a trace: kernels, or operators where no device was traced."""
    on_device = bool((events.kind == Kind.KERNEL).any())
    rows = np.flatnonzero(events.kind == (Kind.KERNEL if on_device else Kind.OPERATOR))
    talks = np.array([kind == "communication" for kind in class_kinds()])
    rows = rows[talks[classes_of(events.names, events.name[rows])]]
    if not on_device:
        rows = _outermost(events, rows)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    launched = events.start[rows]
    if on_device:
        calls = launching_calls(events, rows)
        launched = np.where(calls >= 0, events.start[np.maximum(calls, 0)], -1)
    of = step_of(steps, events.start[rows], launched)
    found: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(rows.tolist()):
        said = events.collectives.get(row)
        key = collective_name(events.names[events.name[row]])
        if said is not None:
            key = f"{said.name} in group {said.group}"
        found[key].append(at)
    return RankCollectives(
        {
            key: Calls(
                events.start[rows[places]] + base_ns,
                events.end[rows[places]] + base_ns,
                [steps[step].phase if step != NO_STEP else NO_PHASE for step in of[places]],
            )
            for key, places in found.items()
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
    phases: list[str] = []
    starts, ends = [], []
    unmatched = 0
    for key in dict.fromkeys(key for rank in ranks for key in rank.calls):
        calls = [rank.calls[key] for rank in ranks if key in rank.calls]
        counts = {len(one.start) for one in calls}
        if len(counts) > 1 or len(calls) < len(ranks):
            unmatched += max(counts)
            continue
        names += [key] * counts.pop()
        phases += calls[0].phases
        starts.append(np.stack([one.start for one in calls]))
        ends.append(np.stack([one.end for one in calls]))
    if not names:
        empty = np.empty((len(ranks), 0), np.int64)
        return Matched([], empty, empty, unmatched, [])
    start, end = np.concatenate(starts, axis=1), np.concatenate(ends, axis=1)
    order = np.argsort(start.max(axis=0), kind="stable")
    return Matched(
        [names[at] for at in order],
        start[:, order],
        end[:, order],
        unmatched,
        [phases[at] for at in order],
    )
