"""Checks of the telemetry: every required collector ran and covers what was measured."""

from collections.abc import Iterable
from typing import Any

from servemap.analysis.verdict import Check
from servemap.parsers.values import mapping, text
from servemap.telemetry.align import Coverage

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
                # Of a short segment one late sample is more than the limit allows, and no gap.
                enough = c.coverage >= limit or (1 - c.coverage) * c.expected < 1
                checks.append(Check(name, c.coverage, limit, enough))
    return checks
