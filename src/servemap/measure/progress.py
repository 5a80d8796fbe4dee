"""One line of progress per measured job."""

from typing import Any

from servemap.measure.job import Job
from servemap.model.plan import Plan


def case_line(plan: Plan, job: Job, meta: dict[str, Any]) -> str:
    """Return `[ 3/24] variant/case r1: ok, 5.2 s` for a repeat that just ended."""
    order = plan.items().repeats
    key = (job.variant, job.case, job.repeat)
    position = str(order.index(key) + 1) if key in order else "-"
    width = len(str(len(order)))
    seconds = sum(seg["end_ns"] - seg["start_ns"] for seg in meta["segments"]) / 1e9
    counts = meta["counts"] or {}
    detail = f", {counts.get('ok', 0)}/{counts.get('planned', 0)} requests, window {seconds:.1f} s"
    reason = f": {meta['reasons'][0].splitlines()[0]}" if meta["reasons"] else ""
    return (
        f"[{position:>{width}}/{len(order)}] {job.label}: {meta['status']}"
        f"{detail if meta['counts'] else ''}{reason}"
    )
