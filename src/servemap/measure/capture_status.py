"""What stands on disk for every planned capture, and the starts that the others need."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from servemap.measure.nsight.window import GRAPHS, SECONDS
from servemap.measure.profiled import profiled_context, profiled_name, why_unavailable
from servemap.measure.status import expected_start_s
from servemap.model import results
from servemap.model.attempts import State, read_json, state
from servemap.model.captures import capture_records
from servemap.parsers.values import integer, mapping
from servemap.server.context import Context

DEFAULT_CAPTURE_S = 30.0


@dataclass(frozen=True)
class PlannedCapture:
    """One planned capture and what is on disk for it.

    Attributes:
        profile: its kind, how much is asked for, and of what, in words.
        tries: how many were made.
        expected_s: what it should take beside the start of its server.
        measured: whether that is known from an earlier try.
        start: the fingerprint of its start; None where there is none.
        start_s: what that start should take.
        missing: why there can be none, in words; None where one can be taken.
    """

    variant: str
    case: str
    profile: str
    state: State
    tries: int
    expected_s: float
    measured: bool
    start: str | None
    start_s: float
    missing: str | None

    @property
    def runs(self) -> bool:
        """Whether the next execution takes it."""
        return self.missing is None and self.state not in ("done", "gave_up")


def planned_captures(context: Context, *phases: str) -> list[PlannedCapture]:
    """Return the captures of some phases (all if none is named) in the planned order."""
    starts: dict[tuple[str, str], str] = {}
    found = []
    for variant, case in context.plan.items(*phases).captures:
        spec = context.plan.spec_data("capture", variant, case)
        asked = spec["capture"]
        missing = why_unavailable(context, variant, asked["kind"])
        started_for = _started_for(asked)
        if missing is None and (variant, started_for) not in starts:
            starts[variant, started_for] = _start(context, variant, asked)
        records = capture_records(context.run, variant, case)
        output = results.capture_dir(context.run, variant, case) / "capture.json"
        sha256 = context.plan.spec_sha256("capture", variant, case)
        stands = state(records, sha256, context.policy.max_attempts)
        start_s = expected_start_s(context, variant)
        past_s = _past_s(context, variant, case, start_s)
        found.append(
            PlannedCapture(
                variant,
                case,
                _profile(asked),
                stands if output.exists() or stands != "done" else "missing",
                len(records),
                DEFAULT_CAPTURE_S if past_s is None else past_s,
                past_s is not None,
                starts.get((variant, started_for)),
                start_s,
                missing,
            )
        )
    return found


def _profile(asked: dict[str, Any]) -> str:
    if asked["kind"] == "nsys":
        seconds, graphs = asked.get("seconds", SECONDS), asked.get("graphs", GRAPHS)
        return f"nsys, {seconds:g} s, graphs by {graphs}"
    stage = f" of {asked['stage']}" if "stage" in asked else ""
    ranks = f", ranks {' '.join(map(str, asked['ranks']))}" if "ranks" in asked else ""
    return f"torch, {asked['num_steps']} steps{stage}{ranks}"


def _started_for(asked: dict[str, Any]) -> str:
    """Return what captures of one variant have in common that share a start."""
    if asked["kind"] == "nsys":
        return f"nsys {asked.get('program')} {asked.get('graphs')}"
    return f"torch {asked['num_steps']}"


def _start(context: Context, variant: str, asked: dict[str, Any]) -> str:
    if asked["kind"] == "nsys":
        # Its fingerprint holds what the nodes' own nsys can trace, which no plan asks.
        return f"{variant} {_started_for(asked)}"
    profiled = profiled_context(context, variant, asked["num_steps"])
    return profiled.plan.spec_sha256("launch", profiled_name(variant))


def _past_s(context: Context, variant: str, case: str, start_s: float) -> float | None:
    """Return what the last try took, without its start; None where it was none that ended well."""
    record = read_json(results.capture_dir(context.run, variant, case) / "capture.json") or {}
    begun, ended = integer(record.get("started_ns")), integer(record.get("ended_ns"))
    if record.get("status") != "ok" or begun is None or ended is None:
        return None
    own_start_s = 0.0 if mapping(record.get("server")).get("reused") else start_s
    return max((ended - begun) / 1e9 - own_start_s, 1.0)


def first_of_starts(captures: Iterable[PlannedCapture]) -> list[PlannedCapture]:
    """Return those captures, of the ones that are still to be taken, which begin with a start.

    A start serves the captures that follow it with the same fingerprint.
    """
    found: list[PlannedCapture] = []
    running: str | None = None
    for one in captures:
        if one.runs and one.start != running:
            found.append(one)
            running = one.start
    return found
