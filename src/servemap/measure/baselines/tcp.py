"""TCP baselines between the campaign's nodes, each ordered pair after the other."""

import time
from contextlib import suppress
from itertools import permutations
from typing import Any

from servemap.model.baselines import TcpBaseline
from servemap.model.check_nodes import LOOPBACK
from servemap.model.errors import ConnectionLostError, NodeError, ServemapError
from servemap.model.files import parse_json
from servemap.nodes.base import Node
from servemap.server.context import Context

READY_S = 10.0
READY_POLL_S = 0.02
FAR_READY_POLL_S = 0.1
IDLE_EXIT_S = 30


def tcp_results(context: Context, spec: TcpBaseline) -> list[dict[str, Any]]:
    """Return what was measured over each pair of nodes, or why nothing was."""
    return [_tcp(context, source, target, spec) for source, target in _pairs(context)]


def _pairs(context: Context) -> list[tuple[str, str]]:
    """Return every ordered pair of nodes; a single node is measured over its own loopback."""
    nodes = context.plan.all_nodes()
    return list(permutations(nodes, 2)) or [(nodes[0], nodes[0])]


def _tcp(context: Context, source: str, target: str, spec: TcpBaseline) -> dict[str, Any]:
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
    context: Context, source: str, target: str, address: str, spec: TcpBaseline
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
