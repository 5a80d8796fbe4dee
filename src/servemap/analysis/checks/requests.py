"""Checks of the requests: recorded, answered, with the tokens and the cache hits of the plan."""

from collections.abc import Collection, Sequence

from servemap.analysis.cached import EngineHits
from servemap.analysis.checks.cache import check_unplanned
from servemap.analysis.requests import (
    FLAG_CACHED,
    FLAG_COUNTS,
    FLAG_MORE_EVENTS,
    FLAG_THOUGHT,
    Request,
)
from servemap.analysis.verdict import Check
from servemap.parsers.clients.records import FLAG_AS_ASKED

# One token either way is a begin-of-sequence token, not another prompt.
SPECIAL_TOKENS = 1

CONTRADICTIONS = (FLAG_COUNTS, FLAG_MORE_EVENTS, FLAG_CACHED, FLAG_THOUGHT)


def check_requests(
    requests: Sequence[Request],
    sent: int | None,
    fixed_length: bool,
    cache_planned: bool,
    engine: EngineHits | None,
    limits: dict[str, float],
    segments: Collection[str] | None = None,
) -> list[Check]:
    """Check the requests: all recorded, with latencies, errors, tokens, unplanned cache hits.

    Args:
        requests: the measured requests.
        sent: how many the client says it sent; a client that does not say is not believed.
        fixed_length: the server was told to ignore the end of sequence, so lengths are planned.
        cache_planned: the case asks for prompts that share a prefix.
        engine: what its counters say of its prefix cache; None where they do not tell.
        limits: limits by name.
        segments: the measured ones; None where all that was recorded is measured.
    """
    ok = [r for r in requests if r.status == "ok"]
    recorded = len(requests)
    share = (recorded - len(ok)) / recorded if recorded else None
    return [
        _check_recorded(requests, sent, segments),
        Check(
            "error_share",
            share,
            limits["error_share"],
            None if share is None else share <= limits["error_share"],
            "" if recorded else "no request was recorded",
        ),
        _check_latencies(ok, limits["latency_missing"]),
        _check_output(ok, fixed_length, limits["output_token_deviation"]),
        _check_input(ok, limits["input_token_mismatch"], limits["input_token_tolerance"]),
        _check_counts(ok, limits["token_count_mismatch"]),
        check_unplanned(ok, cache_planned, engine, limits["cache_hit_rate"]),
    ]


def _check_recorded(
    requests: Sequence[Request], sent: int | None, segments: Collection[str] | None
) -> Check:
    elsewhere = [r.segment for r in requests if segments is not None and r.segment not in segments]
    recorded = len(requests) - len(elsewhere)
    names = ", ".join(sorted(set(elsewhere)))
    note = f"{len(elsewhere)} belong to no measured segment: {names}" if elsewhere else ""
    holds = recorded > 0 and sent == recorded and not elsewhere
    return Check("requests_recorded", recorded, sent, holds, note)


def _check_latencies(ok: Sequence[Request], limit: float) -> Check:
    name = "latencies_missing"
    if not ok:
        return Check(name, None, limit, None, "no request succeeded")
    without = [r for r in ok if r.ttft_s is None or r.e2e_s is None]
    share = len(without) / len(ok)
    flags = ", ".join(sorted({flag for r in without for flag in r.flags}))
    note = f"{len(without)} of {len(ok)} that succeeded" + (f": {flags}" if flags else "")
    return Check(name, share, limit, share <= limit, note if without else "")


def _check_counts(ok: Sequence[Request], limit: float) -> Check:
    name = "token_counts"
    if not ok:
        return Check(name, None, limit, None, "no request succeeded")
    if all(r.output_tokens is None for r in ok):
        return Check(name, None, limit, None, "the server sent no usage")
    counts = {flag: sum(flag in r.flags for r in ok) for flag in CONTRADICTIONS}
    share = sum(any(flag in r.flags for flag in CONTRADICTIONS) for r in ok) / len(ok)
    note = ", ".join(f"{flag}: {count}" for flag, count in counts.items() if count)
    return Check(name, share, limit, share <= limit, note)


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
