"""What a campaign says of its nodes, from `--nodes a,b` and from what the nodes say themselves."""

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from servemap.model.errors import ConfigError
from servemap.model.server_spec import NodeSpec
from servemap.prepare.draft import unique_slugs
from servemap.prepare.survey import Answer

HERE = ("local", "localhost")


@dataclass(frozen=True)
class SshOptions:
    """The way to all nodes by ssh; keys as in a campaign's nodes, None for what is not given."""

    user: str | None = None
    port: int | None = None
    key_file: str | None = None
    known_hosts: str | None = None
    jump: str | None = None

    def given(self) -> dict[str, Any]:
        """Return the keys that are given."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class NodeDraft:
    """What a campaign says of one node.

    Attributes:
        reason: why its cards are not known.
        ssh: further keys of the way to it.
    """

    id: str
    host: str
    transport: str
    user: str | None
    accelerators: int | None = None
    reason: str = ""
    rails: list[dict[str, str]] = field(default_factory=list)
    rails_named: bool = False
    env: dict[str, str] = field(default_factory=dict)
    ssh: dict[str, Any] = field(default_factory=dict)

    @property
    def address_known(self) -> bool:
        """Whether the host was given as an address."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


def node_specs(hosts: str, ssh: SshOptions) -> list[NodeSpec]:
    """Return the nodes of `--nodes a,b`, the first one as head.

    Raises:
        ConfigError: a name is empty, given twice, or this machine among others.
    """
    names = [name.strip() for name in hosts.split(",")]
    where = "--nodes"
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            f"{hosts!r} does not name each node once", where, "give hosts as in: --nodes a,b"
        )
    if len(names) > 1 and set(names) & set(HERE):
        raise ConfigError(
            "this machine is among several nodes", where, "name it by an address the others reach"
        )
    return [
        NodeSpec(id=node_id, role="worker" if number else "head", transport="local")
        if name in HERE
        else NodeSpec(
            id=node_id,
            role="worker" if number else "head",
            transport="ssh",
            address=name,
            **ssh.given(),
        )
        for number, (node_id, name) in enumerate(zip(unique_slugs(names), names, strict=True))
    ]


def node_draft(spec: NodeSpec, answer: Answer, command_env: Mapping[str, str]) -> NodeDraft:
    """Return what a node's survey says for a campaign."""
    host = spec.address if spec.transport == "ssh" else HERE[0]
    given = spec.model_dump(
        include={"port", "key_file", "known_hosts", "jump"}, exclude_defaults=True
    )
    draft = NodeDraft(spec.id, host, spec.transport, spec.user, ssh=given)
    error = answer.unreachable or answer.broken
    if error is not None:
        return replace(draft, reason=f"the node could not be asked: {error.what}")
    cards = answer.found.get("cards") or {}
    rails, named = rails_of(answer.found.get("rdma") or {}, command_env.get("NCCL_IB_HCA", ""))
    return replace(
        draft,
        accelerators=cards.get("count"),
        reason="; ".join(cards.get("errors") or []) or "no tool for accelerators is on PATH",
        rails=rails,
        rails_named=named,
    )


def rails_of(devices: Mapping[str, Any], wanted: str) -> tuple[list[dict[str, str]], bool]:
    """Return the rails of active RDMA devices that have an interface, and whether all were named.

    Args:
        devices: the survey's section.
        wanted: NCCL_IB_HCA; names that begin with one of its entries, or are one after `=`.
    """
    active = {
        name: device["netdevs"][0]
        for name, device in devices.items()
        if isinstance(device, Mapping)
        and device.get("netdevs")
        and any("ACTIVE" in str(port.get("state")) for port in device["ports"].values())
    }
    exact = wanted.startswith("=")
    entries = [entry.partition(":")[0] for entry in wanted.lstrip("=").split(",") if entry]
    if entries and not wanted.startswith("^"):
        chosen = {
            name: netdev
            for name, netdev in active.items()
            if (name in entries if exact else any(map(name.startswith, entries)))
        }
        if chosen:
            return [{"netdev": netdev, "hca": name} for name, netdev in chosen.items()], True
    return [{"netdev": netdev, "hca": name} for name, netdev in active.items()], False
