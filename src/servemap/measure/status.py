"""What stands on disk for every planned job, and what a running campaign is doing."""

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.model import attempts, results
from servemap.model.attempts import State, read_json
from servemap.model.cases import (
    CaseSpec,
    ChatCase,
    FixedCase,
    LevelsCase,
    PrefixCase,
    RateCase,
    ReplayCase,
    SearchCase,
)
from servemap.model.order import CaseKey
from servemap.model.replay import trace_here
from servemap.model.resolve import patch_digest
from servemap.onnode.load_trace import least_s
from servemap.parsers.values import integer, number
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.locks import holder_alive

DEFAULT_CASE_S = 60.0
DEFAULT_START_S = 60.0
EMBEDDED_START_S = 10.0
WINDOW_MARGIN_S = 2.0
"""What a case takes beside its window: warm-up, the last wave, collectors."""


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
    invalid: bool = False

    @property
    def runs(self) -> bool:
        """Whether the next execution measures it."""
        return self.state not in ("done", "gave_up")


def planned_repeats(context: Context, *phases: str) -> list[PlannedRepeat]:
    """Return the repeats of some phases (all if none is named) in the planned order."""
    past = _past_durations(context)
    expected = _expected_durations(context, past)
    return [_planned(context, key, past, expected) for key in context.plan.items(*phases).repeats]


def absent_sources(context: Context, variants: Iterable[str]) -> dict[str, str]:
    """Return {patch: source} of the patches of some variants whose source is not on this machine.

    Their servers are not started; whatever else a campaign plans is measured without them.
    """
    return {
        patch.id: patch.source
        for variant in variants
        for patch in context.server(variant).patches
        if patch.kind != "symlink" and patch_digest(patch) is None
    }


def _planned(
    context: Context, key: CaseKey, past: dict[str, float], expected: dict[str, float]
) -> PlannedRepeat:
    variant, case_id, repeat = key
    case = context.plan.cases[case_id]
    folder = results.repeat_dir(context.run, variant, case_id, repeat)
    records = attempts.read_records(folder / "attempts", folder / "meta.json")
    state = attempts.state(
        records,
        context.plan.spec_sha256("case", variant, case_id),
        context.policy.max_attempts,
        case.expect == "failure",
    )
    if state == "done" and not (folder / "meta.json").exists():
        state = "missing"
    return PlannedRepeat(
        variant,
        case_id,
        repeat,
        state,
        len(records),
        expected[case_id],
        case_id in past,
        state == "done" and _invalid(folder, records[-1].number),
    )


def _invalid(folder: Path, attempt: int) -> bool:
    """Whether the figures of this very attempt were derived and are not valid."""
    metrics = read_json(folder / "metrics.json") or {}
    return metrics.get("attempt") == attempt and metrics.get("verdict") == "invalid"


def _expected_durations(context: Context, past: dict[str, float]) -> dict[str, float]:
    """Return the seconds that each case should take.

    The past comes first, then what the campaign says, then the case's window. A case of which
    nothing is known is guessed as the median of the measured ones, else of all that are known.
    Searches (bounded by max_s) and replays (as long as their trace) tell nothing of other cases.
    """
    cases = context.plan.cases
    per_k = context.plan.campaign.scale.tokens_per_k
    known = {name: past.get(name) or _declared_s(case, per_k) for name, case in cases.items()}
    alike = [name for name, case in cases.items() if not isinstance(case, SearchCase | ReplayCase)]
    others = [past[name] for name in alike if name in past] or [s for n in alike if (s := known[n])]
    guess = statistics.median(others) if others else DEFAULT_CASE_S
    return {name: seconds or guess for name, seconds in known.items()}


def _declared_s(case: CaseSpec, per_k: int) -> float | None:
    if case.expected_s:
        return case.expected_s
    if isinstance(case, SearchCase):
        return case.max_s
    if isinstance(case, FixedCase | PrefixCase | ChatCase | LevelsCase):
        window_s = case.min_window_s
    elif isinstance(case, RateCase):
        window_s = case.num_prompts / case.rate_rps
    elif isinstance(case, ReplayCase):
        trace = trace_here(case, per_k)
        window_s = 0.0 if trace is None else least_s(trace.requests, case.concurrency)
    else:
        window_s = 2 * case.background.min_window_s  # once alone, once with the injection
    return window_s + WINDOW_MARGIN_S if window_s else None


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
    folder = results.variant_dir(context.run, variant)
    records = attempts.read_records(folder / "launches", folder / "launch.json")
    sha256 = context.plan.spec_sha256("launch", variant)
    return attempts.state(records, sha256, context.policy.max_attempts)


@dataclass(frozen=True)
class PlannedLaunch:
    """What is on disk for a variant's launch, and what a start costs; nothing where attached."""

    state: State
    expected_s: float
    attached: bool = False


def planned_launch(context: Context, variant: str) -> PlannedLaunch:
    """Return the launch of a variant as `plan` shows it."""
    attached = bool(context.server(variant).attach)
    start_s = 0.0 if attached else expected_start_s(context, variant)
    return PlannedLaunch(launch_state(context, variant), start_s, attached)


def expected_start_s(context: Context, variant: str) -> float:
    """Return how long a start of a variant took last time, else that of others, else a guess."""
    own = _last_start_s(context, variant)
    if own is not None:
        return own
    others = [s for name in context.plan.variants if (s := _last_start_s(context, name))]
    if others:
        return statistics.median(others)
    embedded = context.server(variant).engine == "llamacpp"
    return EMBEDDED_START_S if embedded else DEFAULT_START_S


def _last_start_s(context: Context, variant: str) -> float | None:
    launch = read_json(results.variant_dir(context.run, variant) / "launch.json") or {}
    return number(launch.get("start_s"))


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
    since = integer(job.get("since_ns"))
    return Live(
        running,
        holder,
        str(job.get("job")) if busy else None,
        (time.time_ns() - since) / 1e9 if busy and since is not None else None,
        stop.get("reason") if running and stop.get("session") == holder.get("session") else None,
    )


def without_metadata(context: Context) -> bool:
    """Whether there are results that Snakemake has no record of (`.snakemake` was not copied)."""
    measured = any(context.run_dir.glob("cases/*/*/r*/meta.json"))
    metadata = Path(".snakemake/metadata")
    return measured and not (metadata.is_dir() and any(metadata.iterdir()))
