"""What the threads of a process did: operators and Python functions by the time of their own."""

from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.classes import class_ids, class_kinds, classes_of
from servemap.analysis.traces.device import ClassTime, Communication
from servemap.analysis.traces.intervals import overlap, union
from servemap.analysis.traces.steps import Step, step_of
from servemap.parsers.traces.table import EventTable, Ints, Kind

TOP_NAMES = 30
TOP_IN_PHASE = 10


@dataclass(frozen=True)
class CallTime:
    """An operator or function: `self_ns` is without the calls of the same kind within it."""

    name: str
    class_id: str
    calls: int
    self_ns: int
    total_ns: int


@dataclass(frozen=True)
class ThreadTime:
    """One thread: how long at least one of its operators ran."""

    process: int | str
    thread: int | str
    operators: int
    busy_ns: int


@dataclass(frozen=True)
class HostPhase:
    """All steps of one phase, on the host: operators by the time of their own."""

    phase: str
    steps: int
    host_mean_ns: float
    operators_ns: int
    classes: list[ClassTime]
    operators: list[CallTime]


@dataclass(frozen=True)
class HostFigures:
    """One process; all figures are of its host threads, classes by operators' time of their own.

    `communication` is exposed where no other thread runs an operator of another class.
    """

    span_ns: int
    operators: list[CallTime]
    functions: list[CallTime]
    classes: list[ClassTime]
    unmatched_share: float
    threads: list[ThreadTime]
    communication: Communication
    phases: list[HostPhase]


def self_times(events: EventTable, rows: Ints) -> Ints:
    """Return for each of the rows its time without what lies within it on the same lane, ns.

    An event that begins within another and ends after it is cut at the end of the outer one.
    """
    order = np.lexsort((-events.end[rows], events.start[rows], events.lane[rows]))
    start, end = events.start[rows][order].tolist(), events.end[rows][order].tolist()
    lanes = events.lane[rows][order].tolist()
    own = [0] * len(order)
    stack: list[int] = []
    lane = None
    for at, begin in enumerate(start):
        if lanes[at] != lane:
            stack.clear()
            lane = lanes[at]
        while stack and end[stack[-1]] <= begin:
            stack.pop()
        if stack:
            end[at] = min(end[at], end[stack[-1]])
            own[stack[-1]] -= end[at] - begin
        own[at] += end[at] - begin
        stack.append(at)
    result = np.zeros(len(order), np.int64)
    result[order] = own
    return result


def runtime_calls(events: EventTable) -> list[CallTime]:
    """Return the calls to the device's runtime and driver, longest time of their own first."""
    rows = np.flatnonzero(events.kind == Kind.RUNTIME)
    return _call_times(events, rows, events.end[rows] - events.start[rows])[:TOP_IN_PHASE]


def host_figures(events: EventTable, steps: list[Step]) -> HostFigures:
    """Return the figures of the host side of a trace; lists are empty where it has none."""
    operators = np.flatnonzero(events.kind == Kind.OPERATOR)
    own = self_times(events, operators)
    functions = np.flatnonzero(events.kind == Kind.PYTHON)
    classes = _class_times(events, operators, own)
    return HostFigures(
        span_ns=int(events.end.max() - events.start.min()) if len(events) else 0,
        operators=_call_times(events, operators, own),
        functions=_call_times(events, functions, self_times(events, functions)),
        classes=classes,
        unmatched_share=next((one.share for one in classes if one.id == "unmatched"), 0.0),
        threads=_threads(events, operators),
        communication=_communication(events, operators, own),
        phases=_phases(events, operators, own, steps),
    )


def _communication(events: EventTable, rows: Ints, own: Ints) -> Communication:
    talks = np.array([kind == "communication" for kind in class_kinds()])
    talk = talks[classes_of(events.names, events.name[rows])]
    during = union(events.start[rows[talk]], events.end[rows[talk]])
    # An operator around a collective does not hide it: only what has no other within it counts.
    leaf = ~talk & (own == events.end[rows] - events.start[rows])
    hidden = overlap(during, union(events.start[rows[leaf]], events.end[rows[leaf]]))
    return Communication(during.total, hidden, during.total - hidden)


def _phases(events: EventTable, rows: Ints, own: Ints, steps: list[Step]) -> list[HostPhase]:
    of = step_of(steps, events.start[rows], events.start[rows])
    found = []
    for phase in dict.fromkeys(step.phase for step in steps):
        which = [at for at, step in enumerate(steps) if step.phase == phase]
        mine = np.isin(of, which)
        lengths = [steps[at].end_ns - steps[at].start_ns for at in which]
        found.append(
            HostPhase(
                phase,
                len(which),
                float(np.mean(lengths)),
                int(own[mine].sum()),
                _class_times(events, rows[mine], own[mine]),
                _call_times(events, rows[mine], own[mine])[:TOP_IN_PHASE],
            )
        )
    return found


def _call_times(events: EventTable, rows: Ints, own: Ints) -> list[CallTime]:
    names, at = np.unique(events.name[rows], return_inverse=True)
    sums = np.bincount(at, weights=own, minlength=len(names)).astype(np.int64)
    length = events.end[rows] - events.start[rows]
    totals = np.bincount(at, weights=length, minlength=len(names)).astype(np.int64)
    calls = np.bincount(at, minlength=len(names))
    top = np.argsort(-sums, kind="stable")[:TOP_NAMES]
    classes = classes_of(events.names, names[top])
    ids = class_ids()
    return [
        CallTime(
            events.names[names[one]], ids[kind], int(calls[one]), int(sums[one]), int(totals[one])
        )
        for one, kind in zip(top, classes, strict=True)
    ]


def _class_times(events: EventTable, rows: Ints, own: Ints) -> list[ClassTime]:
    classes = classes_of(events.names, events.name[rows])
    whole = int(own.sum())
    found = []
    for index, name in enumerate(class_ids()):
        mine = classes == index
        if mine.any():
            ns = int(own[mine].sum())
            total = union(events.start[rows[mine]], events.end[rows[mine]]).total
            share = ns / whole if whole else 0.0
            found.append(ClassTime(name, int(mine.sum()), total, ns, share))
    return sorted(found, key=lambda one: -one.exposed_ns)


def _threads(events: EventTable, rows: Ints) -> list[ThreadTime]:
    found = []
    for lane in np.unique(events.lane[rows]):
        mine = rows[events.lane[rows] == lane]
        process, thread = events.lanes[lane]
        busy = union(events.start[mine], events.end[mine]).total
        found.append(ThreadTime(process, thread, len(mine), busy))
    return sorted(found, key=lambda one: -one.busy_ns)
