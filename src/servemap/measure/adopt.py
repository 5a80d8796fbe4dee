"""Attempts that a dead or interrupted controller left open: finished, or closed as evidence."""

import shutil
from pathlib import Path
from typing import Any

from servemap.measure.ending import stop_load
from servemap.measure.folders import bring_rest, close, know_folders, raw_on
from servemap.measure.job import Job, identity
from servemap.measure.loads import Load, noted_load
from servemap.measure.reasons import server_down_for_sure
from servemap.measure.record import Attempt, close_attempt, known_attempts
from servemap.model.files import parse_json
from servemap.parsers.values import mapping
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.patience import Patience


def find_adoptable(
    context: Context, job: Job, repeat_dir: Path, patience: Patience
) -> tuple[Attempt, Load] | None:
    """Return the open attempt whose load is done or still runs, or None.

    Open attempts that cannot be finished are closed as failed, so that their evidence stays.

    Raises:
        UnreachableError: a node is away, so it is not known; the attempt stays open.
    """
    wanted = identity(context, job)
    for attempt in known_attempts(repeat_dir)[::-1]:
        if attempt.closed:
            return None
        opening = attempt.opening()
        noted = opening.get("identity") or wanted
        load = noted_load(opening)
        same = noted.get("spec_sha256") == wanted["spec_sha256"]
        if load is not None and same and _goes_on(context, job.variant, attempt, load, patience):
            return attempt, load
        abandon(context, attempt, noted, "its controller died and it cannot be finished")
    return None


def _goes_on(
    context: Context, variant: str, attempt: Attempt, load: Load, patience: Patience
) -> bool:
    return _done(context, attempt, load, patience) or _runs(context, variant, load, patience)


def _done(context: Context, attempt: Attempt, load: Load, patience: Patience) -> bool:
    """Whether the client of an open attempt left its record on its node."""
    node = context.nodes[context.plan.load_node]
    know_folders(context, load.collectors, patience)
    path = f"{raw_on(context, node.name, attempt, load.id)}/client.json"
    said = patience.insist(node, lambda: node.read_text(path))
    try:
        return mapping(parse_json(said or "")).get("load_id") == load.id
    except ValueError:
        return False


def _runs(context: Context, variant: str, load: Load, patience: Patience) -> bool:
    """Whether client and server of an open attempt still run."""
    node = context.nodes[context.plan.load_node]
    if not patience.insist(node, lambda: node.alive(load.client)):
        return False
    return server_down_for_sure(context, variant, load.served, patience) is None


def abandon(context: Context, attempt: Attempt, noted: dict[str, Any], reason: str) -> None:
    """End an attempt's load and close it as interrupted, which uses up no try."""
    if attempt.closed:
        return
    left = stop_load(context, attempt)
    reasons = [reason, *left, *bring_rest(context, attempt)]
    record = {**noted, "status": "failed", "cause": "interrupted", "reasons": reasons}
    try:
        close(context, attempt, record)
    except OSError:
        # Room for the record: the raw files of an attempt that cannot be recorded prove nothing.
        shutil.rmtree(attempt.raw, ignore_errors=True)
        close_attempt(
            attempt, {**record, "reasons": [f"{reason}; its raw files were removed", *left]}
        )
    append_event(context.run_dir, "attempt_abandoned", attempt=str(attempt.folder), reason=reason)
