"""Figures of one segment: rates over the window, and distributions over its requests.

Rates divide what was really produced by the segment; they are null when nothing succeeded.
A stream's own block divides by the stream's window (first sent to last token), since in a
mixed segment the injected request may outlive the background. `definitions.yaml` says what each
figure means and is versioned.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from servemap.analysis.goodput import meeting
from servemap.analysis.noise import within_run
from servemap.analysis.requests import Request
from servemap.analysis.stats import change_percent, distribution
from servemap.telemetry.align import Segment

INJECTED = "injected"
CONTROL = "control"
WEIGHTS = ("uncached_input", "cached_input", "output")

SERVICE = (
    "requests",
    "tokens",
    "request_s",
    "input_tok_s",
    "agg_output_tps",
    "total_tok_s",
    "uncached_input_tok_s",
    "cached_input_tok_s",
    "cache_hit_rate",
    "mean_in_flight",
    "weighted_tok_s",
)

Figures = dict[str, Any]


def weighted_throughput(rates: dict[str, float | None], weights: dict[str, float]) -> float | None:
    """Return the sum of weight x tokens/s over uncached input, cached input and output."""
    total = 0.0
    for name in WEIGHTS:
        rate = rates.get(name)
        if rate is None:
            return None
        total += weights[name] * rate
    return total


def figures(
    requests: Sequence[Request],
    window_s: float,
    weights: dict[str, float] | None = None,
    slo: dict[str, float] | None = None,
) -> Figures:
    """Return counts, tokens, rates and distributions of some requests over `window_s` seconds.

    Args:
        requests: measured requests of one segment or one of its streams.
        window_s: the interval that rates are divided by.
        weights: tokens' weights by `uncached_input`, `cached_input`, `output`.
        slo: upper limits in seconds by `ttft_s`, `tpot_s`, `e2e_s`, `itl_p99_s`.
    """
    return {
        **rates(requests, window_s, weights),
        **_goodput(_met(requests, slo), len(requests), window_s),
        **_spread(requests),
    }


def rates(
    requests: Sequence[Request], window_s: float, weights: dict[str, float] | None
) -> Figures:
    """Return counts, tokens and what they make a second; see `figures`."""
    ok = [r for r in requests if r.status == "ok"]
    done = bool(ok) and window_s > 0
    tokens = token_counts(requests)

    def rate(count: float | None) -> float | None:
        return count / window_s if done and count is not None else None

    cached, given = tokens["cached"], tokens["input_actual"]
    uncached = None if cached is None or given is None else given - cached
    result: Figures = {
        "window_s": window_s,
        "requests": len(requests),
        "ok": len(ok),
        "failed": sum(r.status == "failed" for r in requests),
        "timed_out": sum(r.status == "timed_out" for r in requests),
        "success_rate": len(ok) / len(requests) if requests else None,
        "retried": _retried(requests),
        "partial_output_tokens": _partial(requests),
        "tokens": tokens,
        "request_s": rate(len(ok)),
        "input_tok_s": rate(given),
        "agg_output_tps": rate(tokens["output_actual"]),
        "total_tok_s": rate(_total([given, tokens["output_actual"]])),
        "uncached_input_tok_s": rate(uncached),
        "cached_input_tok_s": rate(cached),
        "cache_hit_rate": cached / given if done and cached is not None and given else None,
        "mean_in_flight": rate(sum(r.e2e_s for r in ok if r.e2e_s is not None)),
        "weighted_tok_s": None,
    }
    if weights is not None:
        result["weighted_tok_s"] = weighted_throughput(
            {
                "uncached_input": result["uncached_input_tok_s"],
                "cached_input": result["cached_input_tok_s"],
                "output": result["agg_output_tps"],
            },
            weights,
        )
    return result


def _met(requests: Sequence[Request], slo: dict[str, float] | None) -> int | None:
    """Return how many requests meet the SLO; one that failed meets none."""
    ok = [r for r in requests if r.status == "ok"]
    return None if slo is None or not ok else int(meeting(ok, slo).sum())


def _goodput(met: int | None, requests: int, window_s: float) -> Figures:
    """Return the requests that meet the SLO per second, and their share of all that were sent."""
    if met is None or window_s <= 0:
        return {"goodput_req_s": None, "slo_share": None}
    return {"goodput_req_s": met / window_s, "slo_share": met / requests}


def _spread(requests: Sequence[Request]) -> Figures:
    """Return distributions over the requests that succeeded, and how many carry each flag."""
    ok = [r for r in requests if r.status == "ok"]
    result: Figures = {}
    for name in ("ttft_s", "tpot_s", "e2e_s", "req_output_tps"):
        values = [getattr(r, name) for r in ok]
        result[name] = distribution([v for v in values if v is not None])
    result["itl_s"] = distribution(_joined(r.itl_s for r in ok), own=True)
    # One token an event: the gaps are the ITL, and 20 million of them are not sorted twice.
    alike = all(r.itl_s is r.chunk_gap_s for r in ok)
    gaps = result["itl_s"] if alike else distribution(_joined(r.chunk_gap_s for r in ok), own=True)
    result["chunk_gap_s"] = gaps
    for name, begin, end in (
        ("first_text_s", "sent_ns", "first_text_ns"),
        ("schedule_lag_s", "scheduled_ns", "sent_ns"),
        ("ttft_from_schedule_s", "scheduled_ns", "first_ns"),
        ("e2e_from_schedule_s", "scheduled_ns", "last_ns"),
    ):
        edges = [(getattr(r, begin), getattr(r, end)) for r in ok]
        result[name] = distribution(
            [(b - a) / 1e9 for a, b in edges if a is not None and b is not None]
        )
    result["flags"] = _flag_counts(requests)
    return result


def token_counts(requests: Iterable[Request]) -> dict[str, int | None]:
    """Return planned tokens of all requests and the server's counts of those that succeeded.

    A count that the server did not give for every successful request is None, not a part.
    """
    rows = list(requests)
    ok = [r for r in rows if r.status == "ok"]
    return {
        "input_planned": _total([r.input_planned for r in rows]),
        "input_actual": _total([r.input_tokens for r in ok]),
        "output_planned": _total([r.output_planned for r in rows]),
        "output_actual": _total([r.output_tokens for r in ok]),
        "cached": _total([r.cached_tokens for r in ok]),
        "reasoning": _total([r.reasoning_tokens for r in ok]),
    }


def segment_figures(
    segment: Segment,
    requests: Sequence[Request],
    injected_streams: frozenset[str],
    weights: dict[str, float] | None,
    slo: dict[str, float] | None,
) -> Figures:
    """Return one segment's figures: of its measured streams, of each stream, and of the service.

    `metrics` leaves injected requests out (they are the disturbance, not the workload);
    `service` counts every request that the server worked on; `overlaps` are the stretches (epoch
    ns) in which an injected one was on its way beside the workload.
    """
    rows = [r for r in requests if r.segment == segment.name]
    measured = [r for r in rows if r.stream not in injected_streams]
    disturbing = [r for r in rows if r.stream in injected_streams]
    block = figures(measured, segment.duration_s, weights, slo)
    flying = in_flight(measured, segment)
    expected = block["mean_in_flight"]
    block["measured_in_flight"] = flying
    block["littles_law_ratio"] = expected / flying if flying and expected is not None else None
    streams = {}
    for name in dict.fromkeys(r.stream for r in rows):
        own = [r for r in rows if r.stream == name]
        window_s = stream_window_s(own)
        if len(own) == len(measured) and name not in injected_streams:
            # The only stream: the same requests, over a window of their own.
            met = None if block["slo_share"] is None else round(block["slo_share"] * len(own))
            goodput = _goodput(met, len(own), window_s)
            streams[name] = {**block, **rates(own, window_s, weights), **goodput}
        else:
            streams[name] = figures(own, window_s, weights, slo)
    whole = rates(rows, segment.duration_s, weights)
    ok = [r for r in measured if r.status == "ok"]
    return {
        "name": segment.name,
        "start_ns": segment.start_ns,
        "end_ns": segment.end_ns,
        "duration_s": segment.duration_s,
        "metrics": block,
        "steady": steady(measured),
        "within_run": {
            name: within_run([v for r in ok if (v := getattr(r, name)) is not None])
            for name in ("ttft_s", "tpot_s", "e2e_s")
        },
        "streams": streams,
        "service": {key: whole[key] for key in SERVICE},
        "overlaps": overlaps(segment, disturbing) if measured else [],
    }


def overlaps(segment: Segment, injected: Iterable[Request]) -> list[tuple[int, int]]:
    """Return the stretches of a segment in which any of some requests was on its way, in order."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(
        (max(r.sent_ns, segment.start_ns), min(r.last_ns, segment.end_ns))
        for r in injected
        if r.sent_ns is not None and r.last_ns is not None
    ):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def in_flight(requests: Sequence[Request], segment: Segment) -> float | None:
    """Return how many successful requests were in flight on average, by when each began and ended.

    Little's law (L = lambda W) makes the same of their rate and mean E2E, if all of them lie inside
    the segment; what lies outside of it is not counted here.
    """
    spans = [
        max(min(r.last_ns, segment.end_ns) - max(r.sent_ns, segment.start_ns), 0)
        for r in requests
        if r.status == "ok" and r.sent_ns is not None and r.last_ns is not None
    ]
    return sum(spans) / 1e9 / segment.duration_s if spans and segment.duration_s > 0 else None


def steady(requests: Sequence[Request]) -> Figures:
    """Return latencies without the start, when a closed loop's requests come all at once.

    Left out are the requests that were sent before any had ended, and how many those are is said.
    Where that is all of them (one wave), nothing is left and the latencies are None.
    """
    ends = [r.last_ns for r in requests if r.status == "ok" and r.last_ns is not None]
    first_end = min(ends, default=None)
    rest = [
        r
        for r in requests
        if first_end is not None and r.sent_ns is not None and r.sent_ns >= first_end
    ]
    ok = [r for r in rest if r.status == "ok"]
    result: Figures = {"excluded": len(requests) - len(rest), "requests": len(rest)}
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        values = [getattr(r, name) for r in ok]
        result[name] = distribution([v for v in values if v is not None])
    return result


def stream_window_s(requests: Sequence[Request]) -> float:
    """Return the seconds from a stream's first request sent to its last token."""
    begins = [r.sent_ns for r in requests if r.sent_ns is not None]
    ends = [r.last_ns for r in requests if r.last_ns is not None]
    return max((max(ends) - min(begins)) / 1e9, 0.0) if begins and ends else 0.0


def interference(
    control: Figures,
    injected: Figures,
    requests: Sequence[Request],
    injected_streams: frozenset[str],
) -> Figures | None:
    """Return what an injection did to the streams beside it: change in percent and tagged ITL.

    Compares, per stream that both segments have, the stream's own figures; `itl_s` splits the
    injected segment's gaps into those that overlap an injected request and steady ones.
    """
    result: Figures = {}
    for name, before in control["streams"].items():
        after = injected["streams"].get(name)
        if after is None or name in injected_streams:
            continue
        rows = [r for r in requests if r.segment == injected["name"] and r.stream == name]
        gaps = _joined(r.itl_s for r in rows)
        hit = _joined(r.itl_overlaps_injection for r in rows).astype(np.bool_)
        result[name] = {
            "change": {
                label: {
                    "control": pick(before, path),
                    "injected": pick(after, path),
                    "change_pct": change_percent(pick(before, path), pick(after, path)),
                }
                for label, path in COMPARED.items()
            },
            "itl_s": {
                "overlaps_injection": distribution(gaps[hit]),
                "steady": distribution(gaps[np.logical_not(hit)]),
            },
        }
    return result or None


COMPARED = {
    "agg_output_tps": "agg_output_tps",
    "request_s": "request_s",
    "ttft_p50_s": "ttft_s.p50",
    "ttft_p95_s": "ttft_s.p95",
    "tpot_p50_s": "tpot_s.p50",
    "tpot_p95_s": "tpot_s.p95",
    "itl_p99_s": "itl_s.p99",
    "itl_max_s": "itl_s.max",
    "e2e_p95_s": "e2e_s.p95",
    "req_output_tps_p10": "req_output_tps.p10",
}


def pick(block: Figures | None, path: str) -> float | None:
    """Return the number at a dotted path of nested figures, None where any part is missing."""
    value: Any = block
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) else None


def _retried(requests: Sequence[Request]) -> int | None:
    """Return how many requests took more than one try; None where the client tells of none."""
    tries = [r.attempts for r in requests]
    return None if tries and not any(tries) else sum((n or 1) > 1 for n in tries)


def _partial(requests: Sequence[Request]) -> int | None:
    """Return the tokens of answers that failed; None where one of them is not known."""
    failed = [r.partial_output_tokens for r in requests if r.status != "ok"]
    return _total(failed) if failed else 0


def _total(values: list[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _joined(arrays: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    parts = list(arrays)
    return np.concatenate(parts) if parts else np.empty(0)


def _flag_counts(requests: Iterable[Request]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for request in requests:
        for flag in request.flags:
            counts[flag] = counts.get(flag, 0) + 1
    return counts
