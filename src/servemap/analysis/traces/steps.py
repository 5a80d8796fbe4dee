"""The steps of an engine in a trace, their phases, and which work belongs to which step."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter

from servemap.analysis.traces.classes import Pattern
from servemap.model.base import Model, Slug
from servemap.parsers.traces.table import EventTable, Ints, Kind

Phase = Literal["prefill", "decode", "mixed", "idle", "unknown"]
NO_STEP = -1


class StepName(Model):
    """One entry of `step_names.yaml`, whose head explains the keys."""

    engine: Slug
    pattern: Pattern
    modes: dict[str, Phase] = Field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step on the host's clock, ns of the file; the counts are requests, None if not named."""

    name: str
    phase: Phase
    start_ns: int
    end_ns: int
    prefill_requests: int | None
    decode_requests: int | None


@cache
def step_names() -> tuple[StepName, ...]:
    """Return the known ways of naming steps, in order of the table."""
    text = files(__package__).joinpath("step_names.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[StepName, ...]).validate_python(yaml.safe_load(text))


def read_name(name: str, known: StepName) -> tuple[Phase, int | None, int | None] | None:
    """Return the phase and the numbers of prefill and decode requests; None if it is no step."""
    match = re.match(known.pattern, name)
    if match is None:
        return None
    groups = match.groupdict()
    if groups.get("mode") is not None:
        phase = known.modes.get(groups["mode"], "unknown")
        # Of a mixed step the name does not say how many of its requests decode.
        if groups.get("requests") is None or phase not in ("prefill", "decode"):
            return phase, None, None
        requests = int(groups["requests"])
        return (phase, requests, 0) if phase == "prefill" else (phase, 0, requests)
    if groups.get("prefill") is None or len(groups["prefill"] + groups["decode"]) > 18:
        return "unknown", None, None
    prefill, decode = int(groups["prefill"]), int(groups["decode"])
    if prefill and decode:
        return "mixed", prefill, decode
    if prefill:
        return "prefill", prefill, decode
    return ("decode" if decode else "idle"), prefill, decode


def find_steps(events: EventTable) -> tuple[list[Step], str | None]:
    """Return the steps of a trace in order of time, and the engine that names them so.

    Steps that lie within another one, or begin before it ends, are parts of it.
    """
    rows = np.flatnonzero(events.kind == Kind.ANNOTATION)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    for known in step_names():
        names = np.unique(events.name[rows]).tolist()
        used = {name: said for name in names if (said := read_name(events.names[name], known))}
        steps: list[Step] = []
        for row in rows[np.isin(events.name[rows], list(used))]:
            said = used[int(events.name[row])]
            start = int(events.start[row])
            if not steps or start >= steps[-1].end_ns:
                name = events.names[events.name[row]]
                steps.append(Step(name, said[0], start, int(events.end[row]), said[1], said[2]))
        if steps:
            return steps, known.engine
    return [], None


def step_of(steps: list[Step], start: Ints, launched: Ints) -> Ints:
    """Return for each piece of work the index of its step, `NO_STEP` for none.

    `launched` is when its launching call began, -1 if that is not traced. Work that was launched
    within a step belongs to it. Work whose launch is not traced belongs to the step that was the
    last to begin before the work did.
    """
    if not steps:
        return np.full(len(start), NO_STEP, np.int64)
    begins = np.array([step.start_ns for step in steps])
    ends = np.array([step.end_ns for step in steps])
    known = launched >= 0
    when = np.where(known, launched, start)
    at = np.searchsorted(begins, when, side="right") - 1
    outside = known & (at >= 0) & (when >= ends[np.maximum(at, 0)])
    return np.where(outside, NO_STEP, at)
