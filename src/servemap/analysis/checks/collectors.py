"""Checks of the telemetry: every required collector ran, covers what was measured, and tells it."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from servemap.analysis.checks.cache import ENGINE
from servemap.analysis.verdict import Check
from servemap.parsers.values import mapping, text
from servemap.telemetry.align import AlignedSeries, Coverage, Segment, covered_s
from servemap.telemetry.catalogue import engine_metrics
from servemap.telemetry.declared import known_collector

# Cards do not come and go, as processes on them do.
_CARD = re.compile(r"[gn]pu[\d.]+")
OFF = (
    "no collector ran, by plan: restarts, preemptions, the engine's own counts and foreign load "
    "were not looked at"
)
TOO_SHORT = "shorter than three intervals: telemetry says nothing of it, latencies stay valid"


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
    if not collectors:
        return [Check("collectors", 0, None, None, OFF)]
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
                checks.append(Check(name, None, limit, None, TOO_SHORT))
            else:
                checks.append(Check(name, c.coverage, limit, _enough(c.coverage, limit, c)))
    return checks


def check_figures(
    collectors: dict[str, Any],
    series: Sequence[AlignedSeries],
    coverages: Iterable[Coverage],
    segments: Sequence[Segment],
    limits: dict[str, float],
    engine: str | None,
) -> list[Check]:
    """Check what every required collector told: something, of the engine, of every card throughout.

    Args:
        collectors: meta.json's `collectors`, by NODE/NAME.
        series: what was read of the raw files.
        coverages: of the collectors; a segment that is too short says nothing.
        segments: the measured segments.
        limits: limits by name.
        engine: that was served; None for one that is not known.
    """
    spans = {segment.name: (segment.start_ns, segment.end_ns) for segment in segments}
    told: dict[tuple[str, str, str], list[AlignedSeries]] = {}
    for one in series:
        told.setdefault((one.node, one.collector, one.segment), []).append(one)
    checks: list[Check] = []
    for c in coverages:
        key = f"{c.node}/{c.collector}"
        record = mapping(collectors.get(key))
        known = known_collector(c.collector, record)
        if record.get("required") is not True or known is None or not c.coverage:
            continue
        own = told.get((c.node, c.collector, c.segment), [])
        name = f"figures {key} {c.segment}"
        inside = [one for one in own if one.inside.any() and _of_engine(one, engine)]
        if not inside:
            what = f" of {engine}" if c.collector == ENGINE and engine else ""
            checks.append(Check(name, 0, 1, False, f"its output has no figure{what}"))
            continue
        seen = _seen_cards(own, spans[c.segment], c.interval_s)
        for card, share in seen.items():
            limit = limits["collector_coverage"]
            checks.append(Check(f"{name} {card}", share, limit, _enough(share, limit, c)))
        if not seen:
            checks.append(Check(name, len(inside), 1, True))
    return checks


def _enough(share: float, limit: float, of: Coverage) -> bool:
    # Of a short segment one late sample is more than the limit allows, and no gap.
    return share >= limit or (1 - share) * of.expected < 1


def _of_engine(one: AlignedSeries, engine: str | None) -> bool:
    """Return whether a series is none of /metrics, or has the engine's name before its own."""
    known = engine_metrics().get(engine or "")
    if one.collector != ENGINE or known is None:
        return True
    return one.metric.startswith(known.running.partition(":")[0])


def _seen_cards(
    own: Iterable[AlignedSeries], span: tuple[int, int], interval_s: float
) -> dict[str, float]:
    """Return the share of a segment in which each card was seen, by whichever metric it was most.

    A rate of a card speaks for it as a gauge does: it was there.
    """
    found: dict[str, float] = {}
    for one in own:
        if _CARD.fullmatch(one.entity):
            seen_s = covered_s(one.t_ns[one.inside], None, [span], interval_s)
            share = seen_s / (span[1] - span[0]) * 1e9
            found[one.entity] = max(share, found.get(one.entity, 0.0))
    return found
