"""Idle gaps of a device, and what the host was doing in them."""

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter

from servemap.analysis.traces.classes import Pattern
from servemap.analysis.traces.intervals import EMPTY, Spans, gaps, union, within
from servemap.model.base import Model, Slug
from servemap.parsers.traces.table import EventTable, Ints, Kind, Mask

QUEUED = "queued"
NOT_TRACED = "not_traced"
UNKNOWN = "launch_not_traced"
LONGEST = 10

_KINDS = {
    "runtime": Kind.RUNTIME,
    "operator": Kind.OPERATOR,
    "python": Kind.PYTHON,
    "annotation": Kind.ANNOTATION,
}


class Activity(Model):
    """One entry of `host_activities.yaml`, whose head explains the keys."""

    id: Slug
    means: str = Field(min_length=1)
    of: tuple[Literal["runtime", "operator", "python", "annotation"], ...] = Field(min_length=1)
    patterns: tuple[Pattern, ...] = ()


@cache
def activities() -> tuple[Activity, ...]:
    """Return what a host may be doing, the innermost first."""
    text = files(__package__).joinpath("host_activities.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Activity, ...]).validate_python(yaml.safe_load(text))


@dataclass(frozen=True)
class Gap:
    """One idle gap; `host` is what the launching thread ran in its middle, innermost first."""

    start_ns: int
    length_ns: int
    cause: str
    host: list[str]
    before: str
    after: str


@dataclass(frozen=True)
class GapFigures:
    """All idle gaps of one device; `causes` sums up to `total_ns`.

    `queued` is time in which the next work was launched already and had not begun; the rest is
    time before its launch, by what the launching thread did. `launch_not_traced`: the call that
    launched the next work is not in the file.
    """

    gaps: int
    total_ns: int
    causes: dict[str, int]
    longest: list[Gap] = field(default_factory=list)


def gap_figures(events: EventTable, rows: Ints, calls: Ints, busy: Spans) -> GapFigures:
    """Return the idle gaps of the device whose work is `rows`, launched by the rows `calls`."""
    idle = gaps(busy)
    if not len(idle.start):
        return GapFigures(0, 0, {})
    order = np.argsort(events.start[rows], kind="stable")
    starts = events.start[rows][order]
    after = order[np.searchsorted(starts, idle.end)]
    call = calls[after]
    known = call >= 0
    launch = np.where(known, events.start[np.maximum(call, 0)], idle.start)
    launch = np.clip(launch, idle.start, idle.end)
    parts: dict[str, Ints] = {
        QUEUED: np.where(known, idle.end - launch, 0),
        UNKNOWN: np.where(known, 0, idle.end - idle.start),
    }
    lanes = np.where(known, events.lane[np.maximum(call, 0)], -1)
    for lane in np.unique(lanes[known]):
        mine = np.flatnonzero(lanes == lane)
        for cause, length in _host_parts(events, lane, idle.start[mine], launch[mine]).items():
            parts.setdefault(cause, np.zeros(len(idle.start), np.int64))[mine] = length
    causes = {cause: int(length.sum()) for cause, length in parts.items()}
    return GapFigures(
        len(idle.start),
        idle.total,
        {cause: ns for cause, ns in sorted(causes.items(), key=lambda one: -one[1]) if ns},
        _longest(events, rows, after, idle, lanes, parts),
    )


def _host_parts(events: EventTable, lane: int, start: Ints, end: Ints) -> dict[str, Ints]:
    """Return for each interval how long each activity of one thread fills it, ns."""
    taken = EMPTY
    filled = np.zeros(len(start), np.int64)
    left = events.lane == lane
    parts: dict[str, Ints] = {}
    for activity in activities():
        of_kind = np.zeros(len(Kind), np.bool_)
        of_kind[[_KINDS[name] for name in activity.of]] = True
        mine = of_kind[events.kind]
        mine &= left
        if activity.patterns:
            mine &= _named(events.names, activity)[events.name]
        left &= ~mine
        rows = np.flatnonzero(mine)
        # A thread does one thing at a time: what stands earlier in the table covers what is later.
        fresh = union(events.start[rows], events.end[rows])
        taken = union(
            np.concatenate((taken.start, fresh.start)), np.concatenate((taken.end, fresh.end))
        )
        covered = within(taken, start, end)
        parts[activity.id] = covered - filled
        filled = covered
    parts[NOT_TRACED] = np.maximum(end - start, 0) - filled
    return parts


def _named(names: list[str], activity: Activity) -> Mask:
    search = re.compile("|".join(activity.patterns), re.IGNORECASE).search
    return np.array([bool(search(name)) for name in names], np.bool_)


def _longest(
    events: EventTable,
    rows: Ints,
    after: Ints,
    idle: Spans,
    lanes: Ints,
    parts: dict[str, Ints],
) -> list[Gap]:
    length = idle.end - idle.start
    ends = np.argsort(events.end[rows], kind="stable")
    before = ends[np.searchsorted(events.end[rows][ends], idle.start)]
    found = []
    for gap in np.argsort(-length, kind="stable")[:LONGEST]:
        middle = int(idle.start[gap] + length[gap] // 2)
        stack: list[str] = []
        if lanes[gap] >= 0:
            around = np.flatnonzero(
                (events.lane == lanes[gap]) & (events.start <= middle) & (events.end > middle)
            )
            inner = around[np.argsort(events.end[around] - events.start[around])][:5]
            stack = [events.names[events.name[row]] for row in inner]
        found.append(
            Gap(
                int(idle.start[gap]),
                int(length[gap]),
                max(parts, key=lambda cause: int(parts[cause][gap])),
                stack,
                events.names[events.name[rows[before[gap]]]],
                events.names[events.name[rows[after[gap]]]],
            )
        )
    return found
