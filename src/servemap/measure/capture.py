"""A profile of a few engine steps, bound to one case and never mixed with measured results."""

import shutil
import time
from pathlib import Path
from typing import Any

from servemap.measure import capture_files as files
from servemap.measure.capture_take import take_capture
from servemap.measure.nsight.capture import take_nsys
from servemap.measure.profiled import why_unavailable
from servemap.model import results
from servemap.model.attempts import keep_record
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConnectionLostError, ServemapError
from servemap.model.protocol import SCHEMA
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.locks import server_lock
from servemap.server.not_run import NotRunError


def run_capture(
    context: Context, variant: str, case: str, token: int, output: Path
) -> dict[str, Any]:
    """Take a capture and write its record, also when it failed or cannot be taken; return it.

    The traces of every rank lie beside the record, in a folder a node; the records of all tries
    are kept (see `model.captures`).
    """
    key = ("capture", variant, case)
    spec = context.plan.spec_data(*key)
    begun_ns = time.time_ns()
    facts = _unavailable(context, variant, spec)
    if facts is None:
        with server_lock(context.run_dir, f"capture {variant}/{case}"):
            append_event(context.run_dir, "capture_start", variant=variant, case=case)
            facts = _recorded(context, variant, case, output.parent)
    record = {
        "schema": SCHEMA,
        "run": context.run,
        "variant": variant,
        "case": case,
        "kind": spec["capture"]["kind"],
        "profiled": True,
        "token": token,
        "cause": None,
        "spec": spec,
        "spec_sha256": context.plan.spec_sha256(*key),
        **facts,
        "reasons": [redact_text(reason) for reason in facts["reasons"]],
        "started_ns": begun_ns,
        "ended_ns": time.time_ns(),
    }
    keep_record(results.capture_history(context.run, variant, case), record)
    write_json_atomic(output, record)
    append_event(
        context.run_dir,
        "capture_end",
        variant=variant,
        case=case,
        status=record["status"],
        reasons=record["reasons"],
    )
    return record


def _unavailable(context: Context, variant: str, spec: dict[str, Any]) -> dict[str, Any] | None:
    reason = why_unavailable(context, variant, spec["capture"]["kind"])
    if reason is None and spec["case"]["kind"] == "search":
        reason = "a search has no load of its own; name a case at the load that it found"
    return None if reason is None else {"status": "not_available", "reasons": [reason]}


def _recorded(context: Context, variant: str, case: str, folder: Path) -> dict[str, Any]:
    for old in folder.glob("*/"):
        shutil.rmtree(old)
    try:
        if context.plan.captured(case).kind == "nsys":
            return take_nsys(context, variant, case, folder)
        return take_capture(context, variant, case, folder)
    except NotRunError as error:
        return {"status": "not_run", "cause": error.cause, "reasons": [str(error)]}
    except ServemapError as error:
        return {
            "status": "failed",
            "cause": "unreachable" if isinstance(error, ConnectionLostError) else None,
            "reasons": [str(error)],
            "files": files.kept_files(folder),
        }
