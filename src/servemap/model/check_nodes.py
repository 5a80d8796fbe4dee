"""Rules for the nodes of a campaign, and for what the server spec says about them."""

import zoneinfo
from collections.abc import Iterable
from typing import TypeVar

from servemap.model.campaign import Campaign
from servemap.model.check_server import check_node_env
from servemap.model.errors import ConfigError
from servemap.model.grids import variants_of
from servemap.model.resolve import server_nodes, variant_server
from servemap.model.server_spec import NodeSpec, ServerSpec

LOOPBACK = ("127.", "::1", "localhost")
T = TypeVar("T")
OF_SSH = ("jump", "proxy", "key_file", "known_hosts", "python")


def known(name: str, names: Iterable[str], where: str, what: str) -> None:
    """Refuse a name that the campaign does not declare."""
    found = list(names)
    if name not in found:
        raise ConfigError(
            f"there is no {what} {name!r}", where, f"use one of: {', '.join(found) or '(none)'}"
        )


def check_nodes(campaign: Campaign) -> None:
    """Refuse nodes that cannot be reached as they are described, or that servers cannot share.

    Raises:
        ConfigError: names the key.
    """
    heads = [node.id for node in campaign.nodes if node.role == "head"]
    if len(heads) != 1:
        raise ConfigError(
            f"{len(heads)} nodes have the role head", "nodes", "give exactly one node role: head"
        )
    ids = [node.id for node in campaign.nodes]
    for node in campaign.nodes:
        check_node_env(node)
        _check_way(node)
    _check_different(campaign.nodes)
    for name in campaign.server.nodes:
        known(name, ids, "server.nodes", "node")
    if campaign.load_node is not None:
        known(campaign.load_node, ids, "load_node", "node")
    _check_zone(campaign)
    for variant in variants_of(campaign):
        server = variant_server(campaign, variant)
        for name in server.nodes:
            known(name, ids, f"variants.{variant.id}.set", "node")
        _check_placement(campaign, server)
        _check_paths(campaign, server)


def _check_way(node: NodeSpec) -> None:
    where = f"nodes.{node.id}"
    if node.jump and node.proxy:
        raise ConfigError(
            "a jump host and a proxy command lead to the same node", where, "keep one of them"
        )
    given = [key for key in OF_SSH if getattr(node, key)]
    if node.transport == "local" and given:
        raise ConfigError(
            f"{given[0]} is for ssh, and the node is reached as local",
            f"{where}.{given[0]}",
            "set transport: ssh, or remove the key",
        )


def _check_different(nodes: Iterable[NodeSpec]) -> None:
    """Refuse one machine under two names: what it does would count as done by two."""
    addresses: dict[str, str] = {}
    ways: dict[tuple[str | int | None, ...], str] = {}
    for node in nodes:
        address = node.address.lower()
        if not address.startswith(LOOPBACK):
            _refuse_twice(addresses, address, node, f"the address {node.address}", "address")
        if node.transport == "ssh":
            host = (node.host or node.address).lower()
            way = (host, node.port, node.jump, node.proxy)
            said = f"the same way by ssh, {host} port {node.port}"
            _refuse_twice(ways, way, node, said, "host" if node.host else "address")


def _refuse_twice(seen: dict[T, str], value: T, node: NodeSpec, said: str, key: str) -> None:
    first = seen.setdefault(value, node.id)
    if first != node.id:
        raise ConfigError(
            f"nodes {first!r} and {node.id!r} have {said}",
            f"nodes.{node.id}.{key}",
            "give each node a machine of its own, or remove one of the two",
        )


def _check_zone(campaign: Campaign) -> None:
    if campaign.time_zone is None:
        return
    try:
        zoneinfo.ZoneInfo(campaign.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"{campaign.time_zone!r} is no time zone",
            "time_zone",
            "give a name such as Europe/Berlin or UTC",
        ) from None


def _check_placement(campaign: Campaign, server: ServerSpec) -> None:
    """Refuse a server whose ranks or whose clients could not reach it."""
    if server.attach:
        return
    nodes = {node.id: node for node in campaign.nodes}
    names = server_nodes(campaign, server)
    head = next(node.id for node in campaign.nodes if node.role == "head")
    if names[0] != head:
        raise ConfigError(
            f"the server's first node is {names[0]!r}, the head is {head!r}",
            "server.nodes",
            "list the head first: clients reach the server there",
        )
    for name in names if len(names) > 1 else ():
        if nodes[name].address.startswith(LOOPBACK):
            raise ConfigError(
                f"node {name!r} has the address {nodes[name].address}, which others cannot reach",
                f"nodes.{name}.address",
                "give the address that the server's ranks use, on the rail's network",
            )
    if len(names) > 1 and server.port == server.master_port:
        raise ConfigError(
            f"clients and ranks would meet on the same port of the head, {server.port}",
            "server.master_port",
            "give server.port and server.master_port different numbers",
        )
    away = (campaign.load_node or head) != head
    if away and server.bind.startswith(LOOPBACK):
        raise ConfigError(
            f"the load runs on {campaign.load_node!r}, and the server listens on {server.bind}",
            "server.bind",
            "bind to the head's address, or let the load run on the head",
        )


def _check_paths(campaign: Campaign, server: ServerSpec) -> None:
    """Refuse relative paths on machines that have no working directory of ours."""
    away = [node.id for node in campaign.nodes if node.transport == "ssh"]
    if not away:
        return
    names = set(server_nodes(campaign, server)) & set(away)
    paths = {"model.path": campaign.model.path}
    if names:
        paths |= {
            "server.cwd": server.cwd or "/",
            "server.package.root": server.package.root if server.package else "/",
        }
        if server.python and "/" in server.python:
            paths["server.python"] = server.python
        for patch in server.patches:
            paths[f"server.patches.{patch.id}.target"] = patch.target
            paths[f"server.patches.{patch.id}.root"] = patch.root
    paths |= {f"nodes.{node.id}.workdir": node.workdir or "/" for node in campaign.nodes}
    for key, path in paths.items():
        if not path.startswith("/"):
            raise ConfigError(
                f"{path!r} is a relative path, and node {away[0]!r} is another machine",
                key,
                "give an absolute path, the same on all nodes",
            )
