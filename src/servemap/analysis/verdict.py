"""Is a measurement valid? Checks with their value, limit and outcome.

`ok` is None where a check does not apply (`n/a`), with the reason in `note`. A figure of a
measurement with a failed check is kept as evidence and never plotted or averaged.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from statistics import median
from typing import Any, NamedTuple

import yaml

from servemap.analysis.requests import Request
from servemap.model.errors import ConfigError
from servemap.parsers.clients.records import FLAG_AS_ASKED
from servemap.parsers.values import integer, mapping, number, text
from servemap.telemetry.align import Coverage

# One token either way is a begin-of-sequence token, not another prompt.
SPECIAL_TOKENS = 1


class Check(NamedTuple):
    """One condition: what was met, what is allowed, and whether it holds (None: n/a)."""

    name: str
    value: float | str | None
    limit: float | str | None
    ok: bool | None
    note: str = ""


@cache
def default_limits() -> dict[str, float]:
    """Return the limits of limits.yaml by name."""
    file = resources.files("servemap.analysis").joinpath("limits.yaml")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {name: float(value) for name, value in content["limits"].items()}


def resolve_limits(overrides: dict[str, float]) -> dict[str, float]:
    """Return the defaults with `overrides` laid over them; ConfigError on an unknown name."""
    limits = dict(default_limits())
    for name, value in overrides.items():
        if name not in limits:
            raise ConfigError(
                f"unknown limit {name!r}",
                f"limits.{name}",
                f"use one of: {', '.join(sorted(limits))}",
            )
        limits[name] = float(value)
    return limits


def check_requests(
    requests: Sequence[Request],
    sent: int | None,
    fixed_length: bool,
    cache_planned: bool,
    engine_cache_hits: float | None,
    limits: dict[str, float],
) -> list[Check]:
    """Check the requests: all recorded, errors, tokens against the plan, unplanned cache hits.

    Args:
        requests: the measured requests.
        sent: how many the client says it sent; a client that does not say is not believed.
        fixed_length: the server was told to ignore the end of sequence, so lengths are planned.
        cache_planned: the case asks for prompts that share a prefix.
        engine_cache_hits: the engine's own hit rate, for servers whose usage does not tell.
        limits: limits by name.
    """
    ok = [r for r in requests if r.status == "ok"]
    recorded = len(requests)
    share = (recorded - len(ok)) / recorded if recorded else None
    return [
        Check("requests_recorded", recorded, sent, recorded > 0 and sent == recorded),
        Check(
            "error_share",
            share,
            limits["error_share"],
            None if share is None else share <= limits["error_share"],
            "" if recorded else "no request was recorded",
        ),
        _check_output(ok, fixed_length, limits["output_token_deviation"]),
        _check_input(ok, limits["input_token_mismatch"], limits["input_token_tolerance"]),
        _check_cache(ok, cache_planned, engine_cache_hits, limits["cache_hit_rate"]),
    ]


def _check_output(ok: Sequence[Request], fixed_length: bool, limit: float) -> Check:
    name = "output_tokens_vs_plan"
    if not ok:
        return Check(name, None, limit, None, "no request succeeded")
    if any(r.output_tokens is None for r in ok):
        return Check(name, None, limit, False, "the server sent no usage: its tokens are unknown")
    planned = sum(r.output_planned or 0 for r in ok)
    if not planned:
        return Check(name, None, limit, None, "the plan gives no output length")
    deviation = sum(r.output_tokens or 0 for r in ok) / planned - 1
    if not fixed_length and deviation <= limit:
        return Check(name, deviation, limit, None, "the model may end an answer early")
    return Check(name, deviation, limit, abs(deviation) <= limit)


def _check_input(ok: Sequence[Request], limit: float, tolerance: float) -> Check:
    name = "input_tokens_vs_plan"
    known = [
        (r.input_planned, r.input_tokens)
        for r in ok
        if r.input_planned is not None and r.input_tokens is not None
    ]
    if not known:
        asked = any(FLAG_AS_ASKED in r.flags for r in ok)
        note = "the client asks for no counts" if asked else "the server counted no prompt"
        return Check(name, None, limit, None, note)
    wrong = [
        (planned, actual)
        for planned, actual in known
        if abs(actual - planned) > max(SPECIAL_TOKENS, tolerance * planned)
    ]
    share = len(wrong) / len(known)
    planned, actual = wrong[0] if wrong else (0, 0)
    note = f"{len(wrong)} prompts differ, first {actual} for {planned}" if wrong else ""
    return Check(name, share, limit, share <= limit, note)


def _check_cache(ok: Sequence[Request], planned: bool, engine: float | None, limit: float) -> Check:
    name = "unplanned_cache_hits"
    if planned:
        return Check(name, None, limit, None, "the case plans prompts that share a prefix")
    rate = cached_share(ok)
    if rate is None and engine is not None:
        return Check(name, engine, limit, engine <= limit, "from the engine's own counters")
    if rate is None:
        return Check(name, None, limit, None, "the server does not report cached tokens")
    return Check(name, rate, limit, rate <= limit)


def cached_share(ok: Sequence[Request]) -> float | None:
    """Return cached over input tokens by usage; None where the server does not tell."""
    known = [
        (r.cached_tokens, r.input_tokens)
        for r in ok
        if r.cached_tokens is not None and r.input_tokens is not None
    ]
    total = sum(given for _, given in known)
    return sum(cached for cached, _ in known) / total if total else None


def check_client(
    client: dict[str, Any], requests: Sequence[Request], limits: dict[str, float]
) -> list[Check]:
    """Check that the client did its job and was not what was measured."""
    status = text(client.get("status"))
    lag = number(client.get("max_lag_ms"))
    share = _client_share(client)
    return [
        Check("client_status", status, "ok", status == "ok"),
        at_most("client_lag_ms", lag, lag_limit(requests, limits)),
        at_most("client_cpu_share", share, limits["client_cpu_share"]),
    ]


def lag_limit(requests: Sequence[Request], limits: dict[str, float]) -> float:
    """Return how late (ms) a client may be beside requests of that length."""
    times = [r.e2e_s for r in requests if r.e2e_s is not None]
    tolerated = limits["client_lag_share"] * median(times) * 1e3 if times else 0.0
    return max(limits["client_lag_ms"], tolerated)


def _client_share(client: dict[str, Any]) -> float | None:
    """Return the share of one core that the client took; of one of others, its busiest process.

    Start-up is left out: a client of others is looked at between the lines that mark its window.
    """
    if "client" in client:
        window = mapping(client.get("window_cpu"))
        cpu, wall = number(window.get("busiest_cpu_s")), number(window.get("seconds"))
    else:
        cpu = number(client.get("cpu_s"))
        began, ended = integer(client.get("started_ns")), integer(client.get("ended_ns"))
        wall = (ended - began) / 1e9 if began is not None and ended is not None else None
    return cpu / wall if cpu is not None and wall else None


def at_most(name: str, value: float | None, limit: float) -> Check:
    """Return a check of a figure that the client records."""
    if value is None:
        return Check(name, None, limit, None, "the client did not record it")
    return Check(name, value, limit, value <= limit)


def check_collectors(
    collectors: dict[str, Any], coverages: Iterable[Coverage], limits: dict[str, float]
) -> list[Check]:
    """Check every required collector: it ran to the end, and it covers every segment.

    Args:
        collectors: meta.json's `collectors`, by NODE/NAME.
        coverages: what was found in the raw files.
        limits: limits by name.
    """
    checks: list[Check] = []
    rows = list(coverages)
    limit = limits["collector_coverage"]
    for key, value in sorted(collectors.items()):
        fields = mapping(value)
        if fields.get("required") is not True:
            continue
        status = text(fields.get("status"))
        checks.append(Check(f"collector {key}", status, "ok", status == "ok"))
        own = [c for c in rows if f"{c.node}/{c.collector}" == key]
        if not own:
            checks.append(Check(f"coverage {key}", None, limit, False, "no raw samples"))
        for c in own:
            name = f"coverage {key} {c.segment}"
            if c.coverage is None:
                checks.append(Check(name, None, limit, None, "shorter than three intervals"))
            else:
                # Where the first sample falls is chance, so one missing sample is no gap.
                enough = c.coverage >= limit or c.expected - c.samples < 1
                checks.append(Check(name, c.coverage, limit, enough))
    return checks


def check_clocks(clock: dict[str, Any], limits: dict[str, float]) -> list[Check]:
    """Check of every node's clock how far it drifted from the head's while the case ran.

    What comes from clocks that were set is taken out of it: times are rebuilt over such a step, so
    it misplaces nothing, and it is noted.

    Args:
        clock: meta.json's `clock` by node; the head is checked only where it was set, and records
            of older versions have no drift.
        limits: limits by name.
    """
    checks: list[Check] = []
    limit = limits["clock_drift_ms"]
    for node, record in sorted(clock.items()):
        fields = mapping(record)
        drift, error = integer(fields.get("drift_ns")), integer(fields.get("drift_error_ns"))
        own = integer(fields.get("set_ns")) or 0
        if drift is None or error is None or (fields.get("reference") == node and not own):
            continue
        step = integer(fields.get("step_ns")) or 0
        drifted = abs(drift - step) / 1e6
        notes = [f"the clock was set by {own / 1e6:.1f} ms, and times rebuilt"] if own else []
        if abs(drift - step) <= error:
            notes.append(f"within its error of {error / 1e6:.2f} ms")
        checks.append(
            Check(f"clock_drift_ms {node}", drifted, limit, drifted <= limit, "; ".join(notes))
        )
    return checks


def verdict(checks: Iterable[Check]) -> tuple[str, list[str]]:
    """Return `valid` or `invalid`, and a sentence for each failed check."""
    reasons = [_sentence(check) for check in checks if check.ok is False]
    return ("invalid" if reasons else "valid"), reasons


def _sentence(check: Check) -> str:
    value = f"{check.value:.4g}" if isinstance(check.value, float) else check.value
    limit = f"{check.limit:.4g}" if isinstance(check.limit, float) else check.limit
    sentence = f"{check.name}: {'missing' if value is None else value}, limit {limit}"
    return f"{sentence} ({check.note})" if check.note else sentence
