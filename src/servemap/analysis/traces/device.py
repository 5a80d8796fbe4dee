"""The figures of one device in one capture."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servemap.analysis.traces.classes import class_ids, class_kinds, classes_of
from servemap.analysis.traces.exposure import KINDS, exposed_times
from servemap.analysis.traces.gaps import GapFigures, gap_figures
from servemap.analysis.traces.intervals import overlap, union
from servemap.analysis.traces.launches import by_graph, launching_calls
from servemap.analysis.traces.operators import OperatorTime, operator_times
from servemap.parsers.traces.table import EventTable, Ints, Kind

TOP_KERNELS = 30


@dataclass(frozen=True)
class ClassTime:
    """One class of work on one device: its share is of the time in which the device is busy."""

    id: str
    events: int
    total_ns: int
    exposed_ns: int
    share: float


@dataclass(frozen=True)
class KernelTime:
    """One kernel; `sum_ns` adds every run, also such that overlap."""

    name: str
    class_id: str
    runs: int
    sum_ns: int
    exposed_ns: int
    min_ns: int
    max_ns: int
    longest_start_ns: int


@dataclass(frozen=True)
class Communication:
    """Communication of one device: how long it runs, how much of that compute hides."""

    total_ns: int
    hidden_ns: int
    exposed_ns: int


@dataclass(frozen=True)
class CopyTime:
    """Copies of one direction; `bytes` counts only the copies that say their size."""

    name: str
    copies: int
    bytes: int | None
    sum_ns: int


@dataclass(frozen=True)
class Launches:
    """Launches of kernels; None for what the file does not tell."""

    kernels: int
    kernels_by_graph: int
    graph_share: float | None
    graph_time_share: float | None
    launches_traced: int
    mean_kernel_ns: float | None
    streams: int


@dataclass(frozen=True)
class DeviceFigures:
    """What one device did between its first and its last piece of work."""

    device: int | str
    model: str | None
    start_ns: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication: Communication
    copies_ns: int
    classes: list[ClassTime]
    unmatched_share: float
    kernels: list[KernelTime]
    operators: list[OperatorTime]
    copies: list[CopyTime]
    launches: Launches
    gaps: GapFigures


@dataclass(frozen=True)
class DeviceWork:
    """The rows of one device in an event table, with what was worked out for each."""

    device: int | str
    rows: Ints
    classes: NDArray[np.int32]
    exposed: Ints
    calls: Ints


def device_work(events: EventTable) -> list[DeviceWork]:
    """Return the work of each device in a table, devices in order of their names."""
    rows = np.flatnonzero(events.device)
    lane_device = [lane.process for lane in events.lanes]
    devices = sorted({lane_device[lane] for lane in np.unique(events.lane[rows])}, key=str)
    kinds = np.array([KINDS.index(kind) for kind in class_kinds()])
    found = []
    for device in devices:
        ours = np.array([name == device for name in lane_device], np.bool_)
        mine = rows[ours[events.lane[rows]]]
        classes = classes_of(events.names, events.name[mine])
        kind = kinds[classes]
        exposed = exposed_times(
            events.start[mine],
            events.end[mine],
            {name: kind == index for index, name in enumerate(KINDS)},
        )
        calls = launching_calls(events, mine)
        found.append(DeviceWork(device, mine, classes, exposed, calls))
    return found


def class_times(events: EventTable, work: DeviceWork, chosen: Ints) -> list[ClassTime]:
    """Return the time of each class over the chosen of a device's rows, longest exposed first."""
    classes, exposed = work.classes[chosen], work.exposed[chosen]
    busy = int(exposed.sum())
    found = []
    for index, name in enumerate(class_ids()):
        mine = classes == index
        if not mine.any():
            continue
        rows = work.rows[chosen[mine]]
        own = int(exposed[mine].sum())
        total = union(events.start[rows], events.end[rows]).total
        found.append(ClassTime(name, int(mine.sum()), total, own, own / busy if busy else 0.0))
    return sorted(found, key=lambda one: -one.exposed_ns)


def kernel_times(events: EventTable, work: DeviceWork, chosen: Ints) -> list[KernelTime]:
    """Return the kernels with the most exposed time among the chosen of a device's rows."""
    rows = work.rows[chosen]
    names, at = np.unique(events.name[rows], return_inverse=True)
    length = events.end[rows] - events.start[rows]
    exposed = np.bincount(at, weights=work.exposed[chosen]).astype(np.int64)
    sums = np.bincount(at, weights=length).astype(np.int64)
    runs = np.bincount(at)
    shortest, longest = np.full(len(names), np.iinfo(np.int64).max), np.zeros(len(names), np.int64)
    np.minimum.at(shortest, at, length)
    np.maximum.at(longest, at, length)
    class_index = np.zeros(len(names), np.int64)
    class_index[at] = work.classes[chosen]
    ids = class_ids()
    top = np.lexsort((-sums, -exposed))[:TOP_KERNELS]
    starts = events.start[rows]
    return [
        KernelTime(
            events.names[names[one]],
            ids[class_index[one]],
            int(runs[one]),
            int(sums[one]),
            int(exposed[one]),
            int(shortest[one]),
            int(longest[one]),
            int(starts[(at == one) & (length == longest[one])][0]),
        )
        for one in top
    ]


def device_figures(events: EventTable, work: DeviceWork, model: str | None) -> DeviceFigures:
    """Return the figures of one device; `work` must hold at least one row."""
    rows = work.rows
    start, end = events.start[rows], events.end[rows]
    kinds = np.array([KINDS.index(kind) for kind in class_kinds()])[work.classes]
    spans = {
        name: union(start[kinds == index], end[kinds == index]) for index, name in enumerate(KINDS)
    }
    busy = union(start, end)
    span = int(busy.end[-1] - busy.start[0]) if len(busy.start) else 0
    communication = spans["communication"]
    hidden = overlap(communication, spans["compute"])
    everything = np.arange(len(rows))
    classes = class_times(events, work, everything)
    return DeviceFigures(
        device=work.device,
        model=model or None,
        start_ns=int(start.min()),
        span_ns=span,
        busy_ns=busy.total,
        idle_ns=span - busy.total,
        compute_ns=spans["compute"].total,
        communication=Communication(communication.total, hidden, communication.total - hidden),
        copies_ns=spans["copy"].total,
        classes=classes,
        unmatched_share=next((one.share for one in classes if one.id == "unmatched"), 0.0),
        kernels=kernel_times(events, work, everything),
        operators=operator_times(events, work.calls, work.exposed),
        copies=_copies(events, rows),
        launches=_launches(events, work),
        gaps=gap_figures(events, rows, work.calls, busy),
    )


def _copies(events: EventTable, rows: Ints) -> list[CopyTime]:
    mine = rows[events.kind[rows] != Kind.KERNEL]
    found = []
    for name in np.unique(events.name[mine]):
        these = mine[events.name[mine] == name]
        sizes = [events.sizes[row] for row in these.tolist() if row in events.sizes]
        found.append(
            CopyTime(
                events.names[name],
                len(these),
                sum(sizes) if sizes else None,
                int((events.end[these] - events.start[these]).sum()),
            )
        )
    return sorted(found, key=lambda one: -one.sum_ns)


def _launches(events: EventTable, work: DeviceWork) -> Launches:
    kernels = events.kind[work.rows] == Kind.KERNEL
    rows, calls = work.rows[kernels], work.calls[kernels]
    graph = by_graph(events, rows, calls)
    length = events.end[rows] - events.start[rows]
    total = int(length.sum())
    known = bool((calls >= 0).any() or graph.any())
    streams = Counter(events.lane[work.rows].tolist())
    return Launches(
        kernels=len(rows),
        kernels_by_graph=int(graph.sum()),
        graph_share=float(graph.mean()) if known and len(rows) else None,
        graph_time_share=int(length[graph].sum()) / total if known and total else None,
        launches_traced=int((calls >= 0).sum()),
        mean_kernel_ns=total / len(rows) if len(rows) else None,
        streams=len(streams),
    )
