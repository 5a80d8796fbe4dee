"""One line of progress per measured job."""

from typing import Any

from servemap.measure.job import Job
from servemap.model.calibration import say_status
from servemap.model.errors import parts
from servemap.model.plan import Plan
from servemap.parsers.values import sequence


def case_line(plan: Plan, job: Job, meta: dict[str, Any]) -> str:
    """Return `[ 3/24] variant/case r1: ok, 5.2 s` for a repeat that just ended."""
    order = plan.items().repeats
    key = (job.variant, job.case, job.repeat)
    position = str(order.index(key) + 1) if key in order else "-"
    width = len(str(len(order)))
    seconds = sum(seg["end_ns"] - seg["start_ns"] for seg in meta["segments"]) / 1e9
    counts = meta["counts"] or {}
    detail = f", {counts.get('ok', 0)}/{counts.get('planned', 0)} requests, window {seconds:.1f} s"
    reason = f": {parts(meta['reasons'][0]).line}" if meta["reasons"] else ""
    return (
        f"[{position:>{width}}/{len(order)}] {job.label}: {meta['status']}"
        f"{detail if meta['counts'] else ''}{reason}"
    )


def calibration_line(record: dict[str, Any]) -> str:
    """Return `calibration on NODE: ok, 3 of 3 points usable` for one that was just measured."""
    rows = [row for row in sequence(record.get("rows")) if isinstance(row, dict)]
    reasons = [parts(str(reason)).line for reason in sequence(record.get("reasons"))]
    reasons += [
        f"{row.get('concurrency')} in flight: {row.get('reason')}"
        for row in rows
        if row.get("status") == "server late"
    ]
    reason = f": {reasons[0]}" if reasons else ""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"calibration on {record.get('node')}: {say_status(record)}{reason}{more}"


_COUNTED = {"collective": ("part", ""), "copies": ("node", "")}
"""What a baseline's results are, by its kind."""


def baseline_line(record: dict[str, Any]) -> str:
    """Return `baseline NAME: ok, 2 pairs of nodes` for a baseline that was just measured."""
    count = len(sequence(record.get("results")))
    noun, of = _COUNTED.get(str(record.get("kind")), ("pair", " of nodes"))
    detail = f", {count} {noun}{'' if count == 1 else 's'}{of}" if count else ""
    origin = record.get("reused")
    detail += f", of run {origin['run']}" if isinstance(origin, dict) else ""
    reasons = [parts(str(reason)).line for reason in sequence(record.get("reasons"))]
    reason = f": {reasons[0]}" if reasons else ""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"baseline {record.get('name')}: {record.get('status')}{detail}{reason}{more}"


def capture_line(record: dict[str, Any]) -> str:
    """Return `capture variant/case: ok, 2 traces` for a capture that was just taken."""
    ranks = record.get("ranks")
    detail = f", {ranks} trace{'' if ranks == 1 else 's'}" if record.get("status") == "ok" else ""
    reasons = [parts(str(reason)).line for reason in sequence(record.get("reasons"))]
    reason = f": {reasons[0]}" if reasons else ""
    name = f"{record.get('variant')}/{record.get('case')}"
    return f"capture {name}: {record.get('status')}{detail}{reason}"
