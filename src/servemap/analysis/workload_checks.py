"""Checks that only some measurements have: an open loop's schedule, a reused prefix, a stall."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from servemap.analysis.replay import lag_s, paused
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check, at_most, cached_share, lag_limit
from servemap.parsers.values import integer, mapping, sequence, text
from servemap.telemetry.align import AlignedRow
from servemap.telemetry.catalogue import engine_metrics


def check_schedule(
    load: dict[str, Any], requests: Sequence[Request], limits: dict[str, float]
) -> list[Check]:
    """Check that requests with set times were sent when they were due; no check for other loads.

    Those are an open loop's, and the turns of a replay that come after a pause.

    Args:
        load: the client's specification (load.json).
        requests: the measured requests.
        limits: limits by name.
    """
    names = {text(stream.get("name")) for stream in _streams(load) if _open(stream)}
    waited = {request.id for request, _ in paused(load, requests)}
    if not names and not waited:
        return []
    lags = [
        lag * 1e3
        for r in requests
        if (r.stream in names or r.id in waited) and (lag := lag_s(r)) is not None
    ]
    value = float(np.percentile(lags, 99)) if lags else None
    return [at_most("schedule_lag_p99_ms", value, lag_limit(requests, limits))]


def _open(stream: dict[str, Any]) -> bool:
    kind = stream.get("kind")
    return kind == "rate" or (kind == "replay" and stream.get("concurrency") is None)


def check_prefix(
    load: dict[str, Any],
    requests: Sequence[Request],
    engine_cache_hits: float | None,
    limits: dict[str, float],
) -> list[Check]:
    """Check that the prompts' shared part was found in the cache; no check for other loads.

    Args:
        load: the client's specification (load.json); streams with `prefix_tokens` share a prefix.
        requests: the measured requests, with the cached tokens that usage told.
        engine_cache_hits: the engine's own hit rate, for servers whose usage does not tell.
        limits: limits by name.
    """
    shares = [(integer(s.get("prefix_tokens")), integer(s.get("isl"))) for s in _streams(load)]
    known = [(prefix, isl) for prefix, isl in shares if prefix is not None and isl]
    if not known:
        return []
    name, limit = "cached_share_vs_prefix", limits["prefix_share_miss"]
    asked = known[0][0] / known[0][1]
    told = cached_share([r for r in requests if r.status == "ok"])
    reached = engine_cache_hits if told is None else told
    if reached is None:
        note = f"{asked:.1%} asked; the server does not report cached tokens"
        return [Check(name, None, limit, None if asked == 0 else False, note)]
    engine = "" if engine_cache_hits is None else f", by its counters {engine_cache_hits:.1%}"
    note = f"{asked:.1%} asked, {reached:.1%} reached{engine}"
    return [Check(name, abs(reached - asked), limit, abs(reached - asked) <= limit, note)]


def check_stalled(rows: Iterable[AlignedRow], limits: dict[str, float]) -> list[Check]:
    """Check by the engine's own gauges that it never sat on waiting requests with none running.

    A worker that died or hangs shows so while `/health` still answers. No check where an engine
    does not tell both.

    Args:
        rows: aligned telemetry of all segments.
        limits: limits by name.
    """
    running = {own.running for own in engine_metrics().values()}
    waiting = {own.waiting for own in engine_metrics().values()}
    active: dict[int, float] = {}
    queued: dict[int, float] = {}
    for row in rows:
        for names, totals in ((running, active), (waiting, queued)):
            if row.inside and row.metric in names:
                totals[row.t_ns] = totals.get(row.t_ns, 0.0) + row.value
    both = sorted(active.keys() & queued.keys())
    if not both:
        return []
    longest = 0.0
    since: int | None = None
    for t_ns in both:
        if active[t_ns] == 0 and queued[t_ns] > 0:
            since = t_ns if since is None else since
            longest = max(longest, (t_ns - since) / 1e9)
        else:
            since = None
    return [Check("server_stalled_s", longest, limits["stalled_s"], longest <= limits["stalled_s"])]


def _streams(load: dict[str, Any]) -> list[dict[str, Any]]:
    segments = [mapping(segment) for segment in sequence(load.get("segments"))]
    return [mapping(s) for segment in segments for s in sequence(segment.get("streams"))]
