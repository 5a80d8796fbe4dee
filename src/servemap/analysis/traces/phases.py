"""The figures of each step and of each phase on one device."""

from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.classes import class_ids
from servemap.analysis.traces.device import (
    ClassTime,
    DeviceWork,
    KernelTime,
    class_times,
    kernel_times,
)
from servemap.analysis.traces.intervals import overlap, union
from servemap.analysis.traces.launches import by_graph
from servemap.analysis.traces.operators import OperatorTime, operator_times
from servemap.analysis.traces.steps import Step, step_of
from servemap.parsers.traces.table import EventTable, Ints, Kind

TOP_IN_PHASE = 10


@dataclass(frozen=True)
class StepFigures:
    """One step: how long the host took, and what the device did for it.

    `wait_ns` is from the step's begin on the host to its first device work. `device_*` is None
    where no device work belongs to the step. `classes` is exposed ns by class,
    `by_graph` counts the kernels that a graph launched.
    """

    name: str
    phase: str
    host_start_ns: int
    host_ns: int
    prefill_requests: int | None
    decode_requests: int | None
    device_start_ns: int | None
    device_span_ns: int | None
    device_busy_ns: int | None
    communication_exposed_ns: int | None
    kernels: int
    by_graph: int
    wait_ns: int | None
    classes: dict[str, int]


@dataclass(frozen=True)
class PhaseFigures:
    """All steps of one phase on one device."""

    phase: str
    steps: int
    host_mean_ns: float
    device_span_mean_ns: float | None
    busy_ns: int
    communication_ns: int
    communication_hidden_ns: int
    classes: list[ClassTime]
    kernels: list[KernelTime]
    operators: list[OperatorTime]


def steps_of_work(events: EventTable, work: DeviceWork, steps: list[Step]) -> Ints:
    """Return the step of each row of a device's work."""
    known = work.calls >= 0
    launched = np.where(known, events.start[np.maximum(work.calls, 0)], -1)
    return step_of(steps, events.start[work.rows], launched)


def step_figures(
    events: EventTable, work: DeviceWork, steps: list[Step], of: Ints, communication: Ints
) -> list[StepFigures]:
    """Return a line for each step; `communication` marks the rows that are such work with 1."""
    found = []
    ids = class_ids()
    kernels = events.kind[work.rows] == Kind.KERNEL
    graphs = by_graph(events, work.rows, work.calls) & kernels
    for index, step in enumerate(steps):
        mine = np.flatnonzero(of == index)
        rows = work.rows[mine]
        first = last = busy = exposed = None
        if len(mine):
            first, last = int(events.start[rows].min()), int(events.end[rows].max())
            busy = int(work.exposed[mine].sum())
            exposed = int(work.exposed[mine][communication[mine] == 1].sum())
        found.append(
            StepFigures(
                step.name,
                step.phase,
                step.start_ns,
                step.end_ns - step.start_ns,
                step.prefill_requests,
                step.decode_requests,
                first,
                None if first is None or last is None else last - first,
                busy,
                exposed,
                int(kernels[mine].sum()),
                int(graphs[mine].sum()),
                None if first is None else first - step.start_ns,
                {
                    ids[one]: int(work.exposed[mine][work.classes[mine] == one].sum())
                    for one in np.unique(work.classes[mine])
                },
            )
        )
    return found


def phase_figures(
    events: EventTable, work: DeviceWork, figures: list[StepFigures], of: Ints, communication: Ints
) -> list[PhaseFigures]:
    """Return the figures of each phase, in the order in which phases first occur."""
    found = []
    for phase in dict.fromkeys(step.phase for step in figures):
        which = [index for index, step in enumerate(figures) if step.phase == phase]
        chosen = np.flatnonzero(np.isin(of, which))
        rows, ours = work.rows[chosen], communication[chosen] == 1
        talk = union(events.start[rows[ours]], events.end[rows[ours]])
        rest = union(events.start[rows[~ours]], events.end[rows[~ours]])
        spans = [span for index in which if (span := figures[index].device_span_ns) is not None]
        found.append(
            PhaseFigures(
                phase,
                len(which),
                float(np.mean([figures[index].host_ns for index in which])),
                float(np.mean(spans)) if spans else None,
                int(work.exposed[chosen].sum()),
                talk.total,
                overlap(talk, rest),
                class_times(events, work, chosen),
                kernel_times(events, work, chosen)[:TOP_IN_PHASE],
                operator_times(events, work.calls[chosen], work.exposed[chosen])[:TOP_IN_PHASE],
            )
        )
    return found
