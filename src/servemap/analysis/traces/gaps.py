"""Idle gaps of a device, and what the host was doing in them."""

import re
from collections import Counter
from collections.abc import Iterator
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
_ROWS_AT_ONCE = 1 << 17

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
    of: tuple[Literal["runtime", "operator", "python", "annotation"], ...] = Field(
        min_length=1, strict=False
    )
    patterns: tuple[Pattern, ...] = Field((), strict=False)


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

    `queued` is time in which the call that launched the next work was done and the work had not
    begun; the rest is time before that, by what the launching thread did. `launch_not_traced`:
    the call that launched the next work is not in the file.
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
    after = _after(events.start[rows], idle.end)
    call = calls[after]
    known = call >= 0
    # Work is launched once its call is done: a call may first load code, or wait itself.
    launch = np.where(known, events.end[np.maximum(call, 0)], idle.start)
    launch = np.clip(launch, idle.start, idle.end)
    # Copied, so that the order of all others is let go.
    longest = np.argsort(idle.start - idle.end, kind="stable")[:LONGEST].copy()
    lanes = np.where(known, events.lane[np.maximum(call, 0)], -1)
    causes: Counter[str] = Counter()
    of_longest: dict[int, tuple[int, str]] = {}
    for cause, which, length in _parts(events, idle, lanes, launch):
        causes[cause] += int(length.sum())
        place = np.minimum(np.searchsorted(which, longest), len(which) - 1)
        for at, gap in zip(place.tolist(), longest.tolist(), strict=True):
            if which[at] == gap:
                best = of_longest.get(gap, (-1, ""))
                of_longest[gap] = max(best, (int(length[at]), cause))
    return GapFigures(
        len(idle.start),
        idle.total,
        {cause: ns for cause, ns in causes.most_common() if ns},
        _longest(events, rows, after, idle, lanes, {at: of_longest[at][1] for at in longest}),
    )


def _after(starts: Ints, ends: Ints) -> Ints:
    """Return for each end of a gap the place of the work that begins then."""
    order = np.argsort(starts, kind="stable")
    return order[np.searchsorted(starts[order], ends)]


def _parts(
    events: EventTable, idle: Spans, lanes: Ints, launch: Ints
) -> Iterator[tuple[str, Ints, Ints]]:
    """Yield causes with the gaps that they may be in and their time in each of these, ns."""
    for lane in np.unique(lanes):
        mine = np.flatnonzero(lanes == lane)
        start, end = idle.start[mine], idle.end[mine]
        if lane < 0:
            yield UNKNOWN, mine, end - start
            continue
        yield QUEUED, mine, end - launch[mine]
        for cause, length in _host_parts(events, lane, start, launch[mine]):
            yield cause, mine, length


def _host_parts(
    events: EventTable, lane: int, start: Ints, end: Ints
) -> Iterator[tuple[str, Ints]]:
    """Yield for each activity of one thread how long it fills each interval, ns."""
    taken = EMPTY
    filled = np.zeros(len(start), np.int64)
    left = events.lane == lane
    for activity in activities():
        of_kind = np.zeros(len(Kind), np.bool_)
        of_kind[[_KINDS[name] for name in activity.of]] = True
        mine = of_kind[events.kind]
        mine &= left
        if activity.patterns:
            mine &= _named(events.names, activity)[events.name]
        left &= ~mine
        # A thread does one thing at a time: what stands earlier in the table covers what is later.
        fresh = _covered(events, mine)
        taken = union(
            np.concatenate((taken.start, fresh.start)), np.concatenate((taken.end, fresh.end))
        )
        covered = within(taken, start, end)
        yield activity.id, covered - filled
        filled = covered
    yield NOT_TRACED, end - start - filled


def _covered(events: EventTable, rows: Mask) -> Spans:
    """Return what the chosen rows cover; a part of the table at a time, since they may be many."""
    parts = []
    for low in range(0, len(events), _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        parts.append(union(events.start[part][rows[part]], events.end[part][rows[part]]))
    return union(*(np.concatenate(ends) for ends in zip(*parts, strict=True)))


def _named(names: list[str], activity: Activity) -> Mask:
    search = re.compile("|".join(activity.patterns), re.IGNORECASE).search
    return np.array([bool(search(name)) for name in names], np.bool_)


def _longest(
    events: EventTable,
    rows: Ints,
    after: Ints,
    idle: Spans,
    lanes: Ints,
    causes: dict[int, str],
) -> list[Gap]:
    length = idle.end - idle.start
    ends = np.argsort(events.end[rows], kind="stable")
    before = ends[np.searchsorted(events.end[rows][ends], idle.start)]
    found = []
    for gap, cause in causes.items():
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
                cause,
                stack,
                events.names[events.name[rows[before[gap]]]],
                events.names[events.name[rows[after[gap]]]],
            )
        )
    return found
