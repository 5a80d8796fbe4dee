"""Check of a replay: what was reused against what its trace lets a server find in its cache."""

from collections.abc import Sequence
from typing import Any

from servemap.analysis.cached import EngineHits, cached_share
from servemap.analysis.checks.cache import ENGINE_SLACK, reached
from servemap.analysis.replay import replay_stream, reusable, shares
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check


def check_reuse(
    load: dict[str, Any],
    requests: Sequence[Request],
    engine: EngineHits | None,
    limits: dict[str, float],
) -> list[Check]:
    """Check that a replay found in the cache what its trace says; no check for other loads.

    A trace that does not say what prompts share makes unique ones: that is the usual check for
    unplanned cache hits.

    Args:
        load: the client's specification (load.json).
        requests: the measured requests, with the cached tokens that usage told.
        engine: what its counters say; None where they do not tell. Beside usage that holds it must
            not be less by more than twice the limit.
        limits: limits by name.
    """
    stream = replay_stream(load)
    if not shares(stream):
        return []
    name, limit = "cached_share_vs_trace", limits["replay_share_miss"]
    can = reusable(stream, requests)
    if can is None:
        return [Check(name, None, limit, None, "no request succeeded")]
    share, said = reached(cached_share([r for r in requests if r.status == "ok"]), engine)
    note = f"{can.least:.1%} to {can.most:.1%} of the input came before, {said}"
    if share is None:
        return [Check(name, None, limit, None, note)]
    miss = max(can.least - share, share - can.most, 0.0)
    if miss <= limit and engine is not None:
        # First turns miss, and they are what the scrapes leave out: only too few hits are a fault.
        off = can.least - engine.share
        miss = off if off > ENGINE_SLACK * limit else miss
    return [Check(name, miss, limit, miss <= limit, note)]
