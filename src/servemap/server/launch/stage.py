"""The `launch` stage: the first gated start of a variant, recorded for good."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servemap.model import attempts, results
from servemap.model.canon import write_json_atomic
from servemap.model.files import regular
from servemap.model.protocol import SCHEMA
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.required import required_baselines
from servemap.server.launch.served import Served
from servemap.server.locks import server_lock
from servemap.server.not_run import NotRunError

LOG_TAIL_LINES, LOG_TAIL_BYTES = 30, 1 << 20


def launch_variant(
    context: Context,
    variant: str,
    token: int,
    output: Path,
    before: Callable[[Context, str], None] = lambda _context, _variant: None,
) -> None:
    """Start a variant's server, gate it, and write `launch.json`, also when it failed.

    `before` raises NotRunError where the nodes lack what measuring needs; no server is started.
    """
    started_ns = time.time_ns()
    served: Served | None = None
    reasons: list[str] = []
    cause: str | None = None
    with server_lock(context.run_dir, f"launch {variant}"):
        try:
            before(context, variant)
            served = ensure_server(context, variant)
        except NotRunError as error:
            reasons, cause = [str(error)], error.cause
    record = _record(context, variant, token, started_ns, served, reasons, cause)
    attempts.keep_record(results.variant_dir(context.run, variant) / "launches", record)
    write_json_atomic(output, record)
    append_event(
        context.run_dir, "launched", variant=variant, status=record["status"], reasons=reasons
    )


def _record(
    context: Context,
    variant: str,
    token: int,
    started_ns: int,
    served: Served | None,
    reasons: list[str],
    cause: str | None,
) -> dict[str, Any]:
    spec_sha = context.plan.spec_sha256("launch", variant)
    now = time.time_ns()
    boot = _newest_boot(context, variant)
    gate = _gate(context, variant, served, boot)
    baselines = [check.record() for check in required_baselines(context, variant)]
    gate["checks"] = [*baselines, *gate["checks"]]
    diagnosis = gate.pop("diagnosis", {})
    status = "ok" if served else ("failed" if cause in attempts.CAUSES_THAT_COUNT else "not_run")
    return {
        "schema": SCHEMA,
        "variant": variant,
        "status": status,
        "cause": cause,
        "reasons": reasons,
        "token": token,
        "spec": context.plan.server_spec(variant),
        "spec_sha256": spec_sha,
        "fingerprint": spec_sha,
        "attached": bool(context.server(variant).attach),
        "argv": (served.argv if served else None) or (boot.argv if boot else []),
        "ranks": (served.ranks if served else None) or (boot.ranks if boot else []),
        "images": boot.images if boot else {},
        "engine": context.server(variant).engine,
        "engine_version": served.engine_version if served else None,
        "boot_id": served.boot_id if served else (boot.boot_id if boot else None),
        "drift": served.drift if served else [],
        "gate": gate,
        "diagnosis": diagnosis,
        "started_ns": started_ns,
        "ready_ns": now if served else None,
        "start_s": (now - started_ns) / 1e9 if served else None,
        "log_tail": [] if served else _log_tail(context, variant, boot),
        "files": {},
    }


def _newest_boot(context: Context, variant: str) -> boots.Boot | None:
    known = boots.read_boots(context.run_dir, variant)
    return known[-1] if known and known[-1].session == context.session else None


def _gate(
    context: Context, variant: str, served: Served | None, boot: boots.Boot | None
) -> dict[str, Any]:
    """Return the checks, and what the server said of itself and of its memory where it was ours."""
    boot_id = served.boot_id if served else (boot.boot_id if boot else None)
    if boot_id is None:
        return {"checks": served.checks if served else []}
    folder = boots.boot_dir(context.run_dir, variant, boot_id)
    gate = attempts.read_json(folder / "gate.json") or {}
    return {"checks": [], **{key: value for key, value in gate.items() if key != "schema"}}


def _log_tail(context: Context, variant: str, boot: boots.Boot | None) -> list[str]:
    if boot is None:
        return []
    nodes = context.plan.nodes_of(variant)
    lines = []
    for node_id in nodes:
        prefix = f"{node_id}: " if len(nodes) > 1 else ""
        said = _last_lines(boots.log_file(context.run_dir, variant, boot.boot_id, node_id))
        lines += [prefix + line for line in said]
    return lines


def _last_lines(log: Path) -> list[str]:
    try:
        with open(log, "rb", opener=regular) as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - LOG_TAIL_BYTES))
            text = handle.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [redact_text(line) for line in text.splitlines()[-LOG_TAIL_LINES:]]
