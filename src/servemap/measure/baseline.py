"""TCP baselines between the campaign's nodes, with no server of ours on the cards."""

import time
from itertools import permutations
from pathlib import Path
from typing import Any

from servemap.model import results
from servemap.model.attempts import keep_record
from servemap.model.canon import write_json_atomic
from servemap.model.errors import NodeError, ServemapError
from servemap.model.files import parse_json
from servemap.model.protocol import SCHEMA
from servemap.nodes.base import Node
from servemap.server.context import Context
from servemap.server.ending import stop_server
from servemap.server.locks import server_lock
from servemap.server.stop import stop_request

READY_S = 10.0


def run_baseline(context: Context, name: str, token: int, output: Path) -> None:
    """Measure one baseline and write its result, also when it failed; `token` as for a case."""
    spec = context.plan.baselines[name]
    started_ns = time.time_ns()
    pairs: list[dict[str, Any]] = []
    reasons: list[str] = []
    status, cause = "ok", None
    with server_lock(context.run_dir, f"baseline {name}"):
        request = stop_request(context.run_dir, context.session)
        if request is not None:
            status, cause, reasons = "not_run", request.cause, [request.reason]
        else:
            try:
                stop_server(context, f"baseline {name} needs the cards empty")
                for source, target in _pairs(context):
                    pairs.append(_tcp(context, source, target, spec.pings, spec.seconds))
            except ServemapError as error:
                status, reasons = "failed", [str(error)]
    record = {
        "schema": SCHEMA,
        "name": name,
        "kind": spec.kind,
        "status": status,
        "cause": cause,
        "reasons": reasons,
        "token": token,
        "results": pairs,
        "simulated": False,
        "spec_sha256": context.plan.spec_sha256("baseline", name),
        "started_ns": started_ns,
        "ended_ns": time.time_ns(),
    }
    keep_record(results.baseline_history(context.run, name), record)
    write_json_atomic(output, record)


def _pairs(context: Context) -> list[tuple[str, str]]:
    """Return every ordered pair of nodes; a single node is measured over its own loopback."""
    nodes = context.plan.all_nodes()
    return list(permutations(nodes, 2)) or [(nodes[0], nodes[0])]


def _tcp(context: Context, source: str, target: str, pings: int, seconds: float) -> dict[str, Any]:
    server, client = context.nodes[target], context.nodes[source]
    address = next(n.address for n in context.plan.campaign.nodes if n.id == target)
    folder = f"{context.workdir(target)}/tcp-{time.time_ns()}"
    ready = f"{folder}/ready.json"
    listener = server.spawn(
        server.agent_argv(
            "tcp-serve", "--bind", address, "--port", "0", "--ready", ready, "--idle-exit", "30"
        ),
        log=f"{folder}/serve.log",
    )
    try:
        port = _port(server, ready, f"{folder}/serve.log")
        argv = ["tcp-probe", "--host", address, "--port", str(port), "--pings", str(pings)]
        done = client.run(
            client.agent_argv(*argv, "--seconds", str(seconds)), timeout_s=seconds + 30
        )
        if done.code != 0:
            raise NodeError(
                f"tcp-probe exited with {done.code}: {done.stderr.strip()[-300:]}",
                f"from {source} to {target} ({address}:{port})",
                "see that the address is right and no firewall is between the nodes",
            )
        return {"from": source, "to": target, "address": address, **parse_json(done.stdout)}
    finally:
        server.stop(listener, 2)


def _port(node: Node, ready: str, log: str) -> int:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        text = node.read_text(ready)
        if text:
            return int(parse_json(text)["port"])
        time.sleep(0.02)
    raise NodeError(
        f"tcp-serve did not come up: {(node.read_text(log) or '').strip()[-300:]}",
        f"{node.name}:{log}",
        "see that the node's address in the campaign is one of its own",
    )
