"""What stands on disk for every planned job, and what a running campaign is doing."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.model import attempts, results
from servemap.model.attempts import State, read_json
from servemap.model.plan import CaseKey
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.locks import holder_alive

DEFAULT_CASE_S = 60.0
DEFAULT_START_S = 60.0


@dataclass(frozen=True)
class PlannedRepeat:
    """One planned repetition and what is on disk for it."""

    variant: str
    case: str
    repeat: int
    state: State
    attempts: int
    expected_s: float
    measured: bool

    @property
    def runs(self) -> bool:
        """Whether the next execution measures it."""
        return self.state not in ("done", "gave_up")


def planned_repeats(context: Context, *phases: str) -> list[PlannedRepeat]:
    """Return the repeats of some phases (all if none is named) in the planned order."""
    past = _past_durations(context)
    return [_planned(context, key, past) for key in context.plan.items(*phases).repeats]


def _planned(context: Context, key: CaseKey, past: dict[str, float]) -> PlannedRepeat:
    variant, case_id, repeat = key
    case = context.plan.cases[case_id]
    folder = results.repeat_dir(context.run, variant, case_id, repeat)
    records = attempts.read_records(folder / "attempts")
    state = attempts.state(
        records,
        context.plan.spec_sha256("case", variant, case_id),
        context.policy.max_attempts,
        case.expect == "failure",
    )
    if state == "done" and not (folder / "meta.json").exists():
        state = "missing"
    measured = case_id in past
    expected = past.get(case_id) or case.expected_s or DEFAULT_CASE_S
    return PlannedRepeat(variant, case_id, repeat, state, len(records), expected, measured)


def _past_durations(context: Context) -> dict[str, float]:
    """Return the median wall seconds of each case's finished attempts."""
    seen: dict[str, list[float]] = {}
    begun: dict[tuple[Any, ...], int] = {}
    for event in read_events(context.run_dir):
        key = tuple(event.get(name) for name in ("variant", "case", "repeat"))
        if event.get("event") == "case_start":
            begun[key] = event["t_ns"]
        elif event.get("event") == "case_end" and key in begun and event.get("status") == "ok":
            seen.setdefault(str(event["case"]), []).append((event["t_ns"] - begun[key]) / 1e9)
    return {case: statistics.median(values) for case, values in seen.items()}


def launch_state(context: Context, variant: str) -> State:
    """Return what is on disk for a variant's launch."""
    records = attempts.read_records(results.variant_dir(context.run, variant) / "launches")
    sha256 = context.plan.spec_sha256("launch", variant)
    return attempts.state(records, sha256, context.policy.max_attempts)


def expected_start_s(context: Context, variant: str) -> float:
    """Return how long a start of a variant took last time, or the default."""
    launch = read_json(results.variant_dir(context.run, variant) / "launch.json") or {}
    seconds = launch.get("start_s")
    return float(seconds) if isinstance(seconds, int | float) else DEFAULT_START_S


@dataclass(frozen=True)
class Live:
    """A running campaign, as any shell may see it."""

    running: bool
    holder: dict[str, Any]
    current: str | None
    current_s: float | None
    stop_reason: str | None


def live(context: Context) -> Live:
    """Return whether a controller runs, and which job it is at."""
    holder = read_json(context.run_dir / ".session.json") or {}
    running = holder_alive(holder)
    stop = read_json(context.run_dir / ".stop.json") or {}
    job = read_json(context.run_dir / ".server.lock") or {}
    busy = running and holder_alive(job)
    return Live(
        running,
        holder,
        str(job.get("job")) if busy else None,
        (time.time_ns() - job["since_ns"]) / 1e9 if busy else None,
        stop.get("reason") if stop.get("session") == holder.get("session") else None,
    )


def without_metadata(context: Context) -> bool:
    """Whether there are results that Snakemake has no record of (`.snakemake` was not copied)."""
    measured = any(context.run_dir.glob("cases/*/*/r*/meta.json"))
    metadata = Path(".snakemake/metadata")
    return measured and not (metadata.is_dir() and any(metadata.iterdir()))
