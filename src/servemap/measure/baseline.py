"""Communication baselines of a campaign, with no server of ours on the cards; their records."""

import time
from pathlib import Path
from typing import Any

from servemap.measure.baselines.collective import collective_results
from servemap.measure.baselines.copies import copies_results
from servemap.measure.baselines.environment import environments
from servemap.measure.baselines.reuse import reused_record
from servemap.measure.baselines.tcp import tcp_results
from servemap.measure.record import file_facts
from servemap.model import results
from servemap.model.attempts import next_record
from servemap.model.baselines import BaselineSpec, CopiesBaseline, TcpBaseline
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConnectionLostError, NodeError, ServemapError
from servemap.model.protocol import SCHEMA
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.launch.ending import stop_server
from servemap.server.locks import server_lock
from servemap.server.not_run import NotRunError
from servemap.server.stop import stop_request

LOADAVG = "/proc/loadavg"
LOAD_S = 10.0


def run_baseline(context: Context, name: str, token: int, output: Path) -> dict[str, Any]:
    """Measure one baseline and write its record, also when it failed; return that record.

    `token` is as for a case. A result that cannot be had (a pair of nodes, a part of a collective)
    is named in the reasons and costs no other its figures. With `reuse_from`, the other run's
    record is taken instead, or why not is said.
    """
    spec = context.plan.baselines[name]
    folder = next_record(results.baseline_history(context.run, name))
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "kind": spec.kind,
        "status": "ok",
        "cause": None,
        "reasons": [],
        "token": token,
        "results": [],
        "load_before": {},
        "simulated": False,
        "reused": None,
        "spec": context.plan.spec_data("baseline", name),
        "environment": environments(context, spec),
        "spec_sha256": context.plan.spec_sha256("baseline", name),
        "started_ns": time.time_ns(),
    }
    with server_lock(context.run_dir, f"baseline {name}"):
        request = stop_request(context.run_dir, context.session)
        if request is not None:
            record |= {"status": "not_run", "cause": request.cause, "reasons": [request.reason]}
        else:
            try:
                record |= _measured(context, spec, record, folder)
            except NotRunError as error:
                record |= {"status": "not_run", "cause": error.cause, "reasons": [str(error)]}
            except ServemapError as error:
                record |= {"status": "failed", "reasons": [str(error)]}
                if isinstance(error, ConnectionLostError):
                    record |= {"status": "not_run", "cause": "unreachable"}
    record["reasons"] = [redact_text(reason) for reason in record["reasons"]]
    record["files"] = {
        path.relative_to(folder).as_posix(): file_facts(path)
        for path in sorted(folder.glob("raw/**/*"))
        if path.is_file()
    }
    record["ended_ns"] = time.time_ns()
    write_json_atomic(folder / "meta.json", record)
    write_json_atomic(output, record)
    return record


def _measured(
    context: Context, spec: BaselineSpec, record: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Return what a measurement, or the record of another run, puts into the record."""
    if spec.reuse_from is not None:
        return reused_record(spec, record)
    stop_server(context, f"baseline {spec.id} needs the cards empty")
    load = node_loads(context)
    if isinstance(spec, TcpBaseline):
        found = tcp_results(context, spec)
    elif isinstance(spec, CopiesBaseline):
        found = copies_results(context, spec, folder / "raw")
    else:
        found = collective_results(context, spec, folder / "raw")
    return {
        "load_before": load,
        "results": found,
        "simulated": any(result.get("simulated") for result in found),
        **_judged(found),
    }


def _judged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the status that the results give a record."""
    failed = [result for result in found if result["status"] == "failed"]
    if not failed:
        return {"status": "ok"}
    reasons = [f"{_label(result)}: {result['error']}" for result in failed]
    if all(result["away"] for result in found):
        # Nothing was measured for want of a node, so that uses up no try.
        return {"status": "not_run", "cause": "unreachable", "reasons": reasons}
    return {"status": "failed", "reasons": reasons}


def _label(result: dict[str, Any]) -> str:
    """Return what a result is of: `a to b`, or `a, b NCCL_CROSS_NIC=1`."""
    if "from" in result:
        return f"{result['from']} to {result['to']}"
    settings = [f"{name}={value}" for name, value in result["settings"].items()]
    return " ".join([", ".join(result["nodes"]), *settings])


def node_loads(context: Context) -> dict[str, str | None]:
    """Return {node: its load averages over 1, 5 and 15 min}; None where it does not say them."""
    return each(context.plan.all_nodes(), lambda name: node_load(context, name))


def node_load(context: Context, name: str) -> str | None:
    """Return a node's load averages over 1, 5 and 15 min; None where it does not say them."""
    try:
        done = context.nodes[name].run(["cat", LOADAVG], timeout_s=LOAD_S)
    except NodeError:
        return None
    found = done.stdout.split()[:3]
    return " ".join(found) if done.code == 0 and len(found) == 3 else None
