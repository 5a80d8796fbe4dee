"""A small timeline of all ranks on one clock, in the JSON that Perfetto and Chrome open.

The format is "Trace Event Format". Each rank is a process with the tracks steps, one for each class
of device work, and idle gaps. Times are us from the first event; ranks are put on the first rank's
clock where their collectives tell the difference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servemap.analysis.traces.classes import class_ids
from servemap.analysis.traces.device import DeviceWork
from servemap.analysis.traces.gaps import Gap
from servemap.analysis.traces.intervals import Spans, joined, union
from servemap.analysis.traces.steps import Step
from servemap.parsers.traces.table import EventTable

MOST_SPANS = 5_000
"""Intervals of one track; more are joined where the gaps between them are shortest."""


@dataclass(frozen=True)
class RankTimeline:
    """What is drawn of one rank; `shift_ns` puts its times on the common clock."""

    label: str
    shift_ns: int
    steps: Sequence[Step]
    classes: dict[str, Spans]
    gaps: Sequence[Gap]


def class_spans(events: EventTable, work: Iterable[DeviceWork]) -> dict[str, Spans]:
    """Return when each class of work ran on the devices of a file, `MOST_SPANS` of each at most."""
    ids = class_ids()
    found: dict[str, Spans] = {}
    for device in work:
        for index in np.unique(device.classes):
            rows = device.rows[device.classes == index]
            name = f"device {device.device}: {ids[index]}"
            if len((spans := union(events.start[rows], events.end[rows])).start):
                found[name] = joined(spans, MOST_SPANS)
    return found


def timeline(ranks: Sequence[RankTimeline]) -> dict[str, Any]:
    """Return the document; it is empty of events where nothing is to be drawn."""
    first = min((_first_ns(rank) for rank in ranks if rank.steps or rank.classes), default=0)
    events: list[dict[str, Any]] = []
    for pid, rank in enumerate(ranks):
        events.append(_named("process_name", pid, 0, rank.label))
        tracks = ["steps", *sorted(rank.classes), "idle"]
        events += [_named("thread_name", pid, tid, name) for tid, name in enumerate(tracks)]

        def drawn(
            tid: int, name: str, start: int, end: int, pid: int = pid, shift: int = rank.shift_ns
        ) -> dict[str, Any]:
            at = (start + shift - first) / 1e3
            where = {"pid": pid, "tid": tid}
            return {"ph": "X", "name": name, **where, "ts": at, "dur": (end - start) / 1e3}

        events += [drawn(0, f"{one.phase}: {one.name}", one.start_ns, one.end_ns)
                   for one in rank.steps]  # fmt: skip
        for tid, name in enumerate(sorted(rank.classes), 1):
            spans = rank.classes[name]
            events += [
                drawn(tid, name.partition(": ")[2], start, end)
                for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
            ]
        events += [
            drawn(len(tracks) - 1, f"idle: {one.cause}", one.start_ns, one.start_ns + one.length_ns)
            for one in rank.gaps
        ]
    return {"displayTimeUnit": "ms", "otherData": {"profiled": "true"}, "traceEvents": events}


def _first_ns(rank: RankTimeline) -> int:
    starts = [step.start_ns for step in rank.steps[:1]]
    starts += [int(spans.start[0]) for spans in rank.classes.values()]
    return min(starts) + rank.shift_ns


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
