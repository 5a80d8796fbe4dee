"""TCP baselines between the campaign's nodes, with no server of ours on the cards."""

import time
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

from servemap.model import results
from servemap.model.attempts import keep_record
from servemap.model.canon import write_json_atomic
from servemap.model.check_nodes import LOOPBACK
from servemap.model.errors import ConnectionLostError, NodeError, ServemapError
from servemap.model.files import parse_json
from servemap.model.phases import BaselineSpec
from servemap.model.protocol import SCHEMA
from servemap.nodes.base import Node
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.launch.ending import stop_server
from servemap.server.locks import server_lock
from servemap.server.stop import stop_request

READY_S = 10.0
READY_POLL_S = 0.02
FAR_READY_POLL_S = 0.1
IDLE_EXIT_S = 30
LOADAVG = "/proc/loadavg"
LOAD_S = 10.0


def run_baseline(context: Context, name: str, token: int, output: Path) -> dict[str, Any]:
    """Measure one baseline and write its record, also when it failed; return that record.

    `token` is as for a case. A pair of nodes that cannot be measured is named in the reasons and
    costs no other its result.
    """
    spec = context.plan.baselines[name]
    started_ns = time.time_ns()
    pairs: list[dict[str, Any]] = []
    load: dict[str, str | None] = {}
    reasons: list[str] = []
    status = "ok"
    cause: str | None = None
    with server_lock(context.run_dir, f"baseline {name}"):
        request = stop_request(context.run_dir, context.session)
        if request is not None:
            status, cause, reasons = "not_run", request.cause, [request.reason]
        else:
            try:
                stop_server(context, f"baseline {name} needs the cards empty")
                load = node_loads(context)
                pairs = [_tcp(context, source, target, spec) for source, target in _pairs(context)]
            except ServemapError as error:
                status, reasons = "failed", [str(error)]
                if isinstance(error, ConnectionLostError):
                    status, cause = "not_run", "unreachable"
    failed = [pair for pair in pairs if pair["status"] == "failed"]
    if failed:
        status = "failed"
        reasons = [f"{pair['from']} to {pair['to']}: {pair['error']}" for pair in failed]
    if failed and all(pair["away"] for pair in pairs):
        # Nothing was measured for want of a node, so that uses up no try.
        status, cause = "not_run", "unreachable"
    record = {
        "schema": SCHEMA,
        "name": name,
        "kind": spec.kind,
        "status": status,
        "cause": cause,
        "reasons": reasons,
        "token": token,
        "results": pairs,
        "load_before": load,
        "simulated": False,
        "spec_sha256": context.plan.spec_sha256("baseline", name),
        "started_ns": started_ns,
        "ended_ns": time.time_ns(),
    }
    keep_record(results.baseline_history(context.run, name), record)
    write_json_atomic(output, record)
    return record


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


def _pairs(context: Context) -> list[tuple[str, str]]:
    """Return every ordered pair of nodes; a single node is measured over its own loopback."""
    nodes = context.plan.all_nodes()
    return list(permutations(nodes, 2)) or [(nodes[0], nodes[0])]


def _tcp(context: Context, source: str, target: str, spec: BaselineSpec) -> dict[str, Any]:
    """Return what was measured from one node to another, or why nothing was."""
    address = context.node_spec(target).address
    pair = {"from": source, "to": target, "address": address}
    try:
        if source != target and address.startswith(LOOPBACK):
            raise NodeError(
                f"node {target} has the address {address}, which {source} cannot reach",
                f"nodes.{target}.address",
                "give the address that the other nodes use",
            )
        measured = _probe(context, source, target, address, spec)
    except ServemapError as error:
        return {
            **pair,
            "status": "failed",
            "error": str(error),
            "away": isinstance(error, ConnectionLostError),
        }
    return {**pair, "status": "ok", "error": None, "away": False, **measured}


def _probe(
    context: Context, source: str, target: str, address: str, spec: BaselineSpec
) -> dict[str, Any]:
    server, client = context.nodes[target], context.nodes[source]
    folder = f"{context.workdir(target)}/tcp-{time.time_ns()}"
    ready, log = f"{folder}/ready.json", f"{folder}/serve.log"
    argv = ["--bind", address, "--port", "0", "--ready", ready, "--idle-exit", str(IDLE_EXIT_S)]
    listener = server.spawn(server.agent_argv("tcp-serve", *argv), log=log)
    try:
        port = _port(server, ready, log)
        argv = ["--host", address, "--port", str(port), "--pings", str(spec.pings)]
        done = client.run(
            client.agent_argv("tcp-probe", *argv, "--seconds", str(spec.seconds)),
            timeout_s=spec.seconds + 30,
        )
        if done.code != 0:
            raise NodeError(
                f"tcp-probe exited with {done.code}: {done.stderr.strip()[-300:]}",
                f"from {source} to {target} ({address}:{port})",
                "see that the address is right and no firewall is between the nodes",
            )
        measured: dict[str, Any] = parse_json(done.stdout)
        return measured
    except ValueError as error:
        raise NodeError(
            f"tcp-probe or tcp-serve answered something else than JSON: {error}",
            f"from {source} to {target} ({address})",
            "run the agent there by hand and see what it says",
        ) from error
    finally:
        # A listener whose node is away now ends by itself, idle.
        with suppress(NodeError):
            server.stop(listener, 2)
            if not server.here:
                server.run(["rm", "-rf", "--", folder], timeout_s=10)


def _port(node: Node, ready: str, log: str) -> int:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        text = node.read_text(ready)
        if text:
            return int(parse_json(text)["port"])
        time.sleep(READY_POLL_S if node.here else FAR_READY_POLL_S)
    raise NodeError(
        f"tcp-serve did not come up: {(node.read_text(log) or '').strip()[-300:]}",
        f"{node.name}:{log}",
        "see that the node's address in the campaign is one of its own",
    )
