"""Checks of the prefix cache: what was reused against what the case plans."""

from collections.abc import Sequence
from typing import Any

from servemap.analysis.cached import EngineHits, cached_share
from servemap.analysis.checks.loads import streams
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check
from servemap.parsers.values import integer
from servemap.telemetry.align import Coverage

ENGINE_SLACK = 2.0
"""Limits that the engine's own hit rate may be off by: its scrapes leave out a segment's edges."""

LEAST_SCRAPES = 10
"""Scrapes that a segment must have room for: the edges are then at most a fifth of it."""

ENGINE = "engine_metrics"


def cut_well(coverages: Sequence[Coverage], limits: dict[str, float]) -> bool:
    """Say whether the engine's scrapes cover the segments, so that its rates are those of them."""
    own = [c for c in coverages if c.collector == ENGINE]
    return bool(own) and all(
        c.expected >= LEAST_SCRAPES
        and c.coverage is not None
        and c.coverage >= limits["collector_coverage"]
        for c in own
    )


def reached(told: float | None, engine: EngineHits | None) -> tuple[float | None, str]:
    """Return the cached share that counts, and both in words with what each covers.

    Args:
        told: by usage, of all requests that succeeded; it counts where it is there.
        engine: by the engine's counters.
    """
    if told is not None:
        also = "" if engine is None else f" ({engine.share:.1%} {engine})"
        return told, f"{told:.1%} reached by usage{also}"
    if engine is not None:
        return engine.share, f"{engine.share:.1%} reached {engine}"
    return None, "the server does not report cached tokens"


def check_unplanned(
    ok: Sequence[Request], planned: bool, engine: EngineHits | None, limit: float
) -> Check:
    """Check that nothing was reused where no reuse was planned.

    Args:
        ok: the requests that succeeded, with the cached tokens that usage told.
        planned: the case asks for prompts that share a prefix.
        engine: what its counters say; None where they do not tell. Usage that tells of fewer hits
            is not believed.
        limit: cached over input tokens.
    """
    name = "unplanned_cache_hits"
    if planned:
        return Check(name, None, limit, None, "the case plans prompts that share a prefix")
    rate = cached_share(ok)
    if rate is None and engine is not None:
        return Check(name, engine.share, limit, engine.share <= limit, str(engine))
    if rate is None:
        return Check(name, None, limit, None, "the server does not report cached tokens")
    if engine is not None and engine.share > max(rate, ENGINE_SLACK * limit):
        return Check(name, engine.share, limit, False, f"{engine}; usage tells of {rate:.1%}")
    return Check(name, rate, limit, rate <= limit)


def check_prefix(
    load: dict[str, Any],
    requests: Sequence[Request],
    engine: EngineHits | None,
    limits: dict[str, float],
) -> list[Check]:
    """Check that the prompts' shared part was found in the cache; no check for other loads.

    Args:
        load: the client's specification (load.json); streams with `prefix_tokens` share a prefix.
        requests: the measured requests, with the cached tokens that usage told.
        engine: what its counters say; None where they do not tell. Beside usage that reached the
            share they must be within twice the limit.
        limits: limits by name.
    """
    shares = [(integer(s.get("prefix_tokens")), integer(s.get("isl"))) for s in streams(load)]
    known = [(prefix, isl) for prefix, isl in shares if prefix is not None and isl]
    if not known:
        return []
    name, limit = "cached_share_vs_prefix", limits["prefix_share_miss"]
    asked = known[0][0] / known[0][1]
    share, said = reached(cached_share([r for r in requests if r.status == "ok"]), engine)
    note = f"{asked:.1%} asked, {said}"
    if share is None:
        return [Check(name, None, limit, None if asked == 0 else False, note)]
    miss = abs(share - asked)
    if miss <= limit and engine is not None:
        off = abs(engine.share - asked)
        miss = off if off > ENGINE_SLACK * limit else miss
    return [Check(name, miss, limit, miss <= limit, note)]
