"""Checks of the nodes' clocks against the head's."""

from typing import Any

from servemap.analysis.verdict import Check
from servemap.parsers.values import integer, mapping, number


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


def check_clock_errors(
    clock: dict[str, Any], collectors: dict[str, Any], limits: dict[str, float]
) -> list[Check]:
    """Check what each node's clock may be wrong by against what is put on the head's clock by it.

    That is telemetry, whose samples lie an interval apart, and the segment's edges where the load
    runs beside the head. TTFT, ITL, E2E and which ITL overlaps an injection are differences of one
    process's clock and do not depend on it.

    Args:
        clock: meta.json's `clock` by node; the head itself has no error.
        collectors: meta.json's `collectors` by NODE/NAME, with their intervals.
        limits: limits by name.
    """
    checks: list[Check] = []
    limit = limits["clock_error_share"]
    for node, record in sorted(clock.items()):
        fields = mapping(record)
        error = integer(fields.get("error_ns"))
        intervals = [
            interval
            for key, value in collectors.items()
            if key.startswith(f"{node}/")
            and (interval := number(mapping(value).get("interval_s"))) is not None
        ]
        if fields.get("reference") == node or error is None or not intervals:
            continue
        share = error / 1e9 / min(intervals)
        note = f"{error / 1e6:.3g} ms of a sampling interval of {min(intervals):g} s"
        checks.append(Check(f"clock_error_share {node}", share, limit, share <= limit, note))
    return checks
