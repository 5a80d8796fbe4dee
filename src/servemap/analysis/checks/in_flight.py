"""Checks of the number of requests in flight: Little's law, the asked concurrency, the ramp-up."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from servemap.analysis.checks.client import lag_limit
from servemap.analysis.checks.loads import streams
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check
from servemap.parsers.values import integer, text
from servemap.telemetry.align import AlignedSeries, Segment
from servemap.telemetry.catalogue import engine_metrics

Interval = tuple[int, int]
LEAST_SAMPLES = 10
"""Fewer samples of a gauge say nothing of its average."""


def mean_in_flight(intervals: Iterable[Interval], begin_ns: int, end_ns: int) -> float | None:
    """Return the time average of how many intervals are open between two moments.

    It is the integral of the number in flight over the length: what each interval has in common
    with [begin, end], summed. None where the length is not above 0.
    """
    if end_ns <= begin_ns:
        return None
    common = (min(end, end_ns) - max(begin, begin_ns) for begin, end in intervals)
    return sum(max(length, 0) for length in common) / (end_ns - begin_ns)


class Steady(NamedTuple):
    """A closed loop without its ramps; times in epoch ns.

    Attributes:
        excluded: requests that were sent before any had ended.
        begin_ns: the first end; None where there is one wave only.
        end_ns: when the last request was sent.
        sent: requests sent from then to then.
    """

    excluded: int
    begin_ns: int | None
    end_ns: int | None
    sent: int


def steady_part(intervals: Sequence[Interval]) -> Steady:
    """Return the part of a closed loop in which each end is followed by a new request."""
    first_end = min((end for _, end in intervals), default=None)
    after = [begin for begin, _ in intervals if first_end is not None and begin >= first_end]
    if not after:
        return Steady(len(intervals), None, None, 0)
    return Steady(len(intervals) - len(after), first_end, max(after), len(after))


def check_in_flight(
    load: dict[str, Any],
    segments: Sequence[Segment],
    requests: Sequence[Request],
    gauges: Mapping[str, float],
    limits: dict[str, float],
) -> list[Check]:
    """Check each segment by Little's law, and its closed loop against the asked concurrency.

    Args:
        load: the client's specification (load.json).
        segments: the measured intervals.
        requests: the measured requests, on the same clock.
        gauges: how many the engine said it had, on average by segment (see `engine_in_flight`).
        limits: limits by name.
    """
    checks: list[Check] = []
    for segment in segments:
        rows = [r for r in requests if r.segment == segment.name]
        checks.append(_check_littles_law(segment, rows, gauges, limits))
        for stream in streams(load, segment.name):
            if stream.get("kind") == "closed":
                own = [r for r in rows if r.stream == text(stream.get("name"))]
                asked = integer(stream.get("concurrency"))
                checks += _check_closed(segment.name, stream, own, asked, limits)
    return checks


def _check_littles_law(
    segment: Segment,
    rows: Sequence[Request],
    gauges: Mapping[str, float],
    limits: dict[str, float],
) -> Check:
    """Compare rate x mean E2E of what succeeded with all that was in flight, failures included.

    They differ where failed requests held the server, where requests lie outside the segment that
    their rate is divided by, and where records and segment are not on one clock.
    """
    name, limit = f"littles_law {segment.name}", limits["littles_law_deviation"]
    times = [r.e2e_s for r in rows if r.status == "ok" and r.e2e_s is not None]
    intervals = _intervals(rows)
    measured = mean_in_flight(intervals, segment.start_ns, segment.end_ns)
    if not times or not measured or len(times) < sum(r.status == "ok" for r in rows):
        return Check(name, None, limit, None, "not every request has its times")
    by_law = sum(times) / segment.duration_s
    note = f"{measured:.4g} in flight, {by_law:.4g} by rate x mean E2E"
    if segment.name in gauges:
        note += f", {gauges[segment.name]:.4g} by the engine's gauges"
    deviation = abs(by_law / measured - 1)
    return Check(name, deviation, limit, deviation <= limit, note)


def _check_closed(
    segment: str,
    stream: dict[str, Any],
    rows: Sequence[Request],
    asked: int | None,
    limits: dict[str, float],
) -> list[Check]:
    """Check a closed loop's steady part, and say what its start is of the whole.

    The start, when all requests come at once, is left out of `steady` figures. One wave has no
    steady part: it averages less than what was asked, by right, and nothing is left out of it.
    """
    label = f"{segment}/{stream.get('name')}"
    ramp, reached = f"ramp_up {label}", f"concurrency {label}"
    intervals = _intervals(rows)
    part = steady_part(intervals)
    share_limit, limit = limits["ramp_up_share"], limits["concurrency_deviation"]
    if not intervals or not asked:
        none = "no request has its times" if asked else "the load names no concurrency"
        return [Check(reached, None, limit, None, none)]
    if part.begin_ns is None or part.end_ns is None:
        edges = min(begin for begin, _ in intervals), max(end for _, end in intervals)
        mean = mean_in_flight(intervals, *edges) or 0.0
        note = f"one wave: {mean:.4g} in flight on average of {asked} asked, nothing is left out"
        # Less is right, but more than was asked is another load.
        over = mean / asked - 1
        more = over > limit
        return [
            Check(ramp, None, share_limit, None, note),
            Check(reached, over if more else None, limit, False if more else None, note),
        ]
    share = part.excluded / len(intervals)
    note = f"{part.excluded} of {len(intervals)} requests are left out of the steady figures"
    checks = [Check(ramp, share, share_limit, share <= share_limit, note)]
    length_ns = part.end_ns - part.begin_ns
    mean_steady = mean_in_flight(intervals, part.begin_ns, part.end_ns)
    if mean_steady is None or length_ns < median(end - begin for begin, end in intervals):
        none = f"the steady part of {length_ns / 1e6:.3g} ms is shorter than a request"
        return [*checks, Check(reached, None, limit, None, none)]
    deviation = abs(mean_steady / asked - 1)
    missing = max(asked - mean_steady, 0.0) * length_ns
    gap_ms = missing / part.sent / 1e6
    # Requests that take milliseconds are not followed at once by others: what a client may be late
    # by is no lack of load.
    ok = deviation <= limit or (mean_steady < asked and gap_ms <= lag_limit(rows, limits))
    note = f"{mean_steady:.4g} in flight of {asked} asked, {gap_ms:.3g} ms from an end to a request"
    return [*checks, Check(reached, deviation, limit, ok, note)]


def _intervals(rows: Sequence[Request]) -> list[Interval]:
    """Return from when to when each request was in flight; none of those that were not sent."""
    return [
        (r.sent_ns, r.last_ns)
        for r in rows
        if r.sent_ns is not None and r.last_ns is not None and r.last_ns >= r.sent_ns
    ]


def engine_in_flight(telemetry: Iterable[AlignedSeries]) -> dict[str, float]:
    """Return how many requests the engine ran and kept waiting, on average by segment.

    An independent count, but of few samples: it is said beside Little's law and not judged.

    Args:
        telemetry: aligned, of all segments.
    """
    names = {name for own in engine_metrics().values() for name in (own.running, own.waiting)}
    seen: dict[str, dict[int, float]] = {}
    for one in telemetry:
        if one.metric in names:
            add_by_time(seen.setdefault(one.segment, {}), one)
    return {
        segment: fmean(totals.values())
        for segment, totals in seen.items()
        if len(totals) >= LEAST_SAMPLES
    }


def add_by_time(totals: dict[int, float], one: AlignedSeries) -> None:
    """Add what a series says inside its segment to the sums by time."""
    inside = one.inside
    for t_ns, value in zip(one.t_ns[inside].tolist(), one.value[inside].tolist(), strict=True):
        totals[t_ns] = totals.get(t_ns, 0.0) + value
