"""The gate `transport`: the paths that NCCL connected against those that the campaign requires."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servemap.model.server_spec import ServerSpec, Topology
from servemap.model.transport import Transport
from servemap.server.gates.checks import Check
from servemap.server.gates.transport_paths import Connected, Path, connected
from servemap.server.gates.transport_remedies import remedies

NAME = "transport"
NOT_APPLICABLE = "n/a: "
SWITCH = "NCCL_DEBUG"
"""A rank whose environment has it runs an engine that can use NCCL."""

_IB_PLUGIN = re.compile(r"NET/IBext(?:_v\d{1,3})?")
"""The RDMA plugin of HPC-X drives the same devices (nccl-rdma-sharp-plugins, src/ib_plugin.c)."""

Problem = tuple[str, str]
"""A key `problem` of transport.yaml, and what was seen."""


def transport_gate(
    server: ServerSpec, logs: Mapping[str, str], envs: Sequence[Mapping[str, str]]
) -> tuple[list[Check], dict[str, Any] | None]:
    """Compare what the server's logs show with what its spec requires.

    Args:
        server: the spec.
        logs: the log of the rank on each node, by node.
        envs: the environment that each rank was started with.

    Returns:
        the check, none for an engine without NCCL; and the paths and ranks as they are stored
        (`Connected.record`), None where the logs show none.
    """
    asks = server.transport is not None and server.transport.asks_paths
    if not asks and not any(SWITCH in env for env in envs):
        return [], None
    seen = connected(logs)
    record = seen.record() if seen.paths or seen.ranks else None
    return [judge(server, list(logs), seen, envs)], record


def judge(
    server: ServerSpec, nodes: Sequence[str], seen: Connected, envs: Sequence[Mapping[str, str]]
) -> Check:
    """Return the check; it is not applicable where nothing is required or nothing can be."""
    topology, required = server.topology, server.transport
    said = "; ".join(
        [
            *_said(seen.paths),
            *(f"the log of {n} was too long, its middle was not read" for n in seen.partial),
        ]
    )
    if topology.tp * topology.pp * topology.dp == 1 and not seen.paths:
        return _not_applicable("there is one card, which NCCL connects to nothing")
    if required is None or not required.asks_paths:
        shown = f"connected: {said}" if said else "the log shows no connection of NCCL"
        return _not_applicable(
            "; ".join(["server.transport requires no path", shown, *seen.unread])
        )
    problems: list[Problem] = []
    notes: list[str] = []
    for found, note in (
        _between_nodes(required, nodes, seen),
        _within_nodes(required, topology, nodes, seen),
    ):
        problems += found
        notes += note
    if len(notes) < _parts(required):
        problems += _not_whole(topology, problems, seen)
    if problems:
        evidence = "; ".join(text for _, text in problems)
        return Check(
            NAME,
            False,
            f"{evidence}; connected: {said}" if said else evidence,
            " ".join(remedies([kind for kind, _ in problems], seen, envs, server.container)),
        )
    evidence = "; ".join(filter(None, [said, *notes]))
    if len(notes) == _parts(required):
        return _not_applicable(evidence)
    return Check(NAME, True, evidence)


def _not_whole(
    topology: Topology, problems: Sequence[Problem], seen: Connected
) -> Iterator[Problem]:
    """Yield why the logs may hide a connection; ranks only where each node shows one."""
    for text in seen.unread:
        yield "unread", f"not shown: {text}"
    if "shown" in (kind for kind, _ in problems):
        return
    for text in seen.missing:
        yield "ranks", f"not shown: {text}"
    # Data parallel ranks may share these cards.
    ranks = topology.tp * topology.pp
    if seen.connected < ranks and not seen.missing:
        yield "ranks", f"not shown: {seen.connected} of {ranks} ranks logged a connection"


def _not_applicable(reason: str) -> Check:
    return Check(NAME, None, f"{NOT_APPLICABLE}{reason}")


def _parts(required: Transport) -> int:
    return _asks_between(required) + (required.intra is not None)


def _asks_between(required: Transport) -> bool:
    return any(one is not None for one in (required.inter, required.gdr, required.hcas))


def _between_nodes(
    required: Transport, nodes: Sequence[str], seen: Connected
) -> tuple[list[Problem], list[str]]:
    """Return what differs between nodes, and why nothing is to be seen there."""
    if not _asks_between(required):
        return [], []
    if len(nodes) < 2:
        return [], ["between nodes: the server has one node"]
    # SHARP (COLLNET) comes on top of a network, never in its place.
    paths = [
        path
        for path in seen.paths
        if path.scope == "inter_node" and not path.path.startswith("COLLNET/")
    ]
    problems = _missing(nodes, paths, "between nodes", seen)
    if required.inter is not None:
        problems += _other_paths(paths, required.inter, "between nodes")
    over_network = [path for path in paths if path.path.startswith("NET/")]
    if required.gdr is not None:
        problems += _gdr(over_network, required.gdr)
    if required.hcas is not None:
        problems += _hcas(over_network, required.hcas)
    return problems, []


def _within_nodes(
    required: Transport, topology: Topology, nodes: Sequence[str], seen: Connected
) -> tuple[list[Problem], list[str]]:
    """Return what differs within the nodes, and why nothing is to be seen there."""
    if required.intra is None:
        return [], []
    paths = [path for path in seen.paths if path.scope == "intra_node"]
    if not paths and _one_card_each(topology, nodes, seen):
        return [], ["within nodes: one card on each"]
    problems = _missing(nodes, paths, "within the node", seen)
    problems += _other_paths(paths, required.intra, "within nodes")
    return problems, []


def _one_card_each(topology: Topology, nodes: Sequence[str], seen: Connected) -> bool:
    """Return whether no node has two cards of the server.

    Whether data parallel ranks have cards of their own depends on the engine and its options; then
    the log has to show it.
    """
    if topology.tp * topology.pp > len(nodes):
        return False
    if topology.tp * topology.pp * topology.dp <= len(nodes):
        return True
    shown = [{row["bus_id"] or row["gpu"] for row in seen.ranks if row["node"] == n} for n in nodes]
    return all(len(cards) == 1 for cards in shown)


def _missing(
    nodes: Sequence[str], paths: Sequence[Path], where: str, seen: Connected
) -> list[Problem]:
    """Return the nodes whose logs show no connection of a scope."""
    shown = {path.node for path in paths}
    return [
        (
            "shown",
            f"not shown: the log of {node} has no "
            + ("line of NCCL" if node in seen.silent else f"connection {where}"),
        )
        for node in nodes
        if node not in shown
    ]


def _other_paths(paths: Sequence[Path], required: str, where: str) -> Iterator[Problem]:
    for path in paths:
        if _is(path.path, required):
            continue
        if path.scope == "intra_node":
            kind = "p2p"
        else:
            kind = "socket" if path.path == "NET/Socket" else "inter"
        over = f" over {', '.join(path.devices)}" if path.devices else ""
        yield (
            kind,
            f"{path.node}: {path.links} connections {where} are {path.path}{over}, "
            f"required: {required}",
        )


def _is(path: str, required: str) -> bool:
    """Return whether a path is the required one; without a kind, any of the transport is."""
    if required == "NET/IB" and _IB_PLUGIN.fullmatch(path):
        return True
    return path == required or ("/" not in required and path.partition("/")[0] == required)


def _gdr(paths: Sequence[Path], required: bool) -> Iterator[Problem]:
    for path in paths:
        with_it = path.gdr_send + path.gdr_receive
        if with_it != (path.links if required else 0):
            yield (
                "gdr",
                f"{path.node}: GDRDMA in {path.gdr_send} of {path.sends} sends and "
                f"{path.gdr_receive} of {path.receives} receives over {path.path}, "
                f"required: {'all' if required else 'none'}",
            )


def _hcas(paths: Sequence[Path], required: Sequence[str]) -> Iterator[Problem]:
    for node in dict.fromkeys(path.node for path in paths):
        own = [path for path in paths if path.node == node]
        used = {device for path in own for device in path.devices}
        unnamed = sorted({index for path in own for index in path.unnamed})
        if unnamed:
            numbers = ", ".join(map(str, unnamed))
            yield "shown", f"not shown: the log of {node} has no name for device {numbers}"
        elif used != set(required):
            yield (
                "hca",
                f"{node}: uses {', '.join(sorted(used))}, required: {', '.join(required)}",
            )


def _said(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the paths in words, those that are alike on several nodes together."""
    groups: dict[tuple[str, str, tuple[str, ...], str], list[Path]] = {}
    for path in paths:
        direct = ""
        if path.path.startswith(("NET/", "COLLNET/")):
            with_it = path.gdr_send + path.gdr_receive
            direct = {0: " without GDRDMA", path.links: " with GDRDMA"}.get(
                with_it, " in part with GDRDMA"
            )
        groups.setdefault((path.scope, path.path, path.devices, direct), []).append(path)
    for (scope, name, devices, direct), group in sorted(groups.items()):
        where = "within nodes" if scope == "intra_node" else "between nodes"
        over = f" over {', '.join(devices)}" if devices else ""
        on = ", ".join(dict.fromkeys(path.node for path in group))
        links = sum(path.links for path in group)
        yield f"{where} {name}{over}{direct} ({links} connections, {on})"
