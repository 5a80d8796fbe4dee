"""The load client's own error on the load node, with no server of ours beside it."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from servemap.measure.baseline import node_load
from servemap.model import results
from servemap.model.attempts import next_record
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConnectionLostError, NodeError, ServemapError
from servemap.model.files import parse_json
from servemap.model.protocol import SCHEMA
from servemap.server.context import Context
from servemap.server.launch.ending import stop_server
from servemap.server.locks import server_lock
from servemap.server.stop import stop_request

START_S = 60.0
POINT_S = 60.0
MAX_BYTES = 1_000_000_000


def run_calibration(context: Context, token: int, output: Path) -> dict[str, Any]:
    """Measure the client's error at the plan's numbers in flight; write and return the record.

    A point that failed is named in the reasons and costs no other its figures; one whose server
    was late is marked in its row and is no failure: the machine was busy, and says how much.
    """
    node = context.plan.load_node
    started_ns = time.time_ns()
    found: dict[str, Any] = {}
    load: str | None = None
    reasons: list[str] = []
    status = "ok"
    cause: str | None = None
    folder = next_record(results.calibration_history(context.run))
    with server_lock(context.run_dir, "calibration"):
        request = stop_request(context.run_dir, context.session)
        if request is not None:
            status, cause, reasons = "not_run", request.cause, [request.reason]
        else:
            try:
                stop_server(context, "the load client is calibrated without a server beside it")
                load = node_load(context, node)
                found = _measure(context, node, folder / "raw")
            except ServemapError as error:
                status, reasons = "failed", [str(error)]
                if isinstance(error, ConnectionLostError):
                    status, cause = "not_run", "unreachable"
    rows = found.get("rows", [])
    failed = [row for row in rows if row["status"] == "failed"]
    if failed:
        status, reasons = "failed", [row["reason"] for row in failed]
    record = {
        "schema": SCHEMA,
        "node": node,
        "status": status,
        "cause": cause,
        "reasons": reasons,
        "token": token,
        "rows": rows,
        "cpus": found.get("cpus"),
        "late_limit_ms": found.get("late_limit_ms"),
        "load_before": load,
        "spec_sha256": context.plan.spec_sha256("calibrate"),
        "started_ns": started_ns,
        "ended_ns": time.time_ns(),
    }
    write_json_atomic(folder / "meta.json", record)
    write_json_atomic(output, record)
    return record


def _measure(context: Context, node_id: str, folder: Path) -> dict[str, Any]:
    """Run the calibration on a node and bring its raw files; return calibration.json."""
    node = context.nodes[node_id]
    there = context.on_node(node_id, folder)
    counts = context.plan.calibrated
    argv = ["--out", there, "--concurrency", ",".join(map(str, counts))]
    try:
        done = node.run(
            node.agent_argv("calibrate", *argv), timeout_s=START_S + POINT_S * len(counts)
        )
        text = node.read_text(f"{there}/calibration.json")
        if text is None:
            raise NodeError(
                f"calibrate exited with {done.code}: {done.stderr.strip()[-300:]}",
                f"{node_id}:{there}",
                "run `servemap calibrate --out DIR` there by hand and see what it says",
            )
        node.fetch(there, folder, max_bytes=MAX_BYTES)
        found: dict[str, Any] = parse_json(text)
        return found
    except ValueError as error:
        raise NodeError(
            f"calibration.json is no JSON: {error}",
            f"{node_id}:{there}",
            "run `servemap calibrate --out DIR` there by hand and see what it writes",
        ) from error
    finally:
        if not node.here:
            with suppress(NodeError):
                node.run(["rm", "-rf", "--", there], timeout_s=10)
