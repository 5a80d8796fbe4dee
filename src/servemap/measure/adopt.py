"""Attempts that a dead or interrupted controller left open: finished, or closed as evidence."""

import shutil
from pathlib import Path
from typing import Any

from servemap.measure.client import client_result
from servemap.measure.job import Job, identity
from servemap.measure.load_run import Load, alive_check, noted_load, stop_load
from servemap.measure.record import Attempt, close_attempt, known_attempts
from servemap.server.context import Context
from servemap.server.events import append_event


def find_adoptable(context: Context, job: Job, repeat_dir: Path) -> tuple[Attempt, Load] | None:
    """Return the open attempt whose load is done or still runs, or None.

    Open attempts that cannot be finished are closed as failed, so that their evidence stays.
    """
    wanted = identity(context, job)
    for attempt in known_attempts(repeat_dir)[::-1]:
        if attempt.closed:
            return None
        opening = attempt.opening()
        noted = opening.get("identity") or wanted
        load = noted_load(opening)
        if load is not None and noted.get("spec_sha256") == wanted["spec_sha256"]:
            whole = client_result(attempt.raw) is not None
            runs = context.head.alive(load.client) and alive_check(context, load.served)()
            if whole or runs:
                return attempt, load
        abandon(context, attempt, noted, "its controller died and it cannot be finished")
    return None


def abandon(context: Context, attempt: Attempt, noted: dict[str, Any], reason: str) -> None:
    """End an attempt's load and close it as interrupted, which uses up no try."""
    if attempt.closed:
        return
    stop_load(context, attempt)
    record = {**noted, "status": "failed", "cause": "interrupted", "reasons": [reason]}
    try:
        close_attempt(attempt, record)
    except OSError:
        # Room for the record: the raw files of an attempt that cannot be recorded prove nothing.
        shutil.rmtree(attempt.raw, ignore_errors=True)
        close_attempt(attempt, {**record, "reasons": [f"{reason}; its raw files were removed"]})
    append_event(context.run_dir, "attempt_abandoned", attempt=str(attempt.folder), reason=reason)
