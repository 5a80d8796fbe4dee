"""What NCCL's log of a server's nodes shows: which ranks were connected over which paths."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from servemap.parsers.clean import clean
from servemap.parsers.communication.nccl_log import read_log
from servemap.parsers.communication.nccl_paths import Link, scope
from servemap.parsers.communication.nccl_state import Log
from servemap.server.gates.transport_ranks import missing_ranks, ranks_connected

Scope = Literal["intra_node", "inter_node"]
Place = tuple[str, str]
"""Node, and host name in its log: where a rank is."""
_SHOWN_CHARS = 120
# What launch/node_log.py writes into a log that is too long to be read whole.
_LEFT_OUT = re.compile(r"^\[servemap: about \d+ bytes are left out here;", re.MULTILINE)


@dataclass(frozen=True)
class Path:
    """The connections of one node over one path, each direction of each channel counted once.

    Attributes:
        node: the node whose log shows them.
        scope: within the node or between nodes.
        path: transport and kind, such as `P2P/CUMEM`, `SHM/direct`, `NET/IB`.
        links: how many.
        channels: how many different channels they are of.
        devices: names of the network devices in use.
        unnamed: indexes of network devices that the log gives no name for.
        gdr_send: of `sends`, those whose data leave the card's memory without a copy (GDRDMA).
        gdr_receive: of `receives`, those whose data go straight into it.
    """

    node: str
    scope: Scope
    path: str
    links: int
    channels: int
    devices: tuple[str, ...]
    unnamed: tuple[int, ...]
    sends: int
    gdr_send: int
    receives: int
    gdr_receive: int


@dataclass(frozen=True)
class Connected:
    """What the logs of a server show.

    Attributes:
        silent: nodes whose logs have no line of NCCL.
        partial: nodes of whose logs only the beginning and the end were read.
        paths: what was connected.
        unread: lines that tell of a connection and cannot be judged, in words.
        connected: how many ranks are connected to others.
        missing: ranks of NCCL's communicators that the logs do not show, in words.
        ranks: [{node, rank, host, pid, gpu, bus_id, nics}]; of a process's ranks that in its
            largest communicator.
        environment: values of the variables that NCCL says it read.
        findings: classes of `parsers/communication/nccl_findings.yaml` that the logs show.
    """

    silent: tuple[str, ...]
    partial: tuple[str, ...]
    paths: tuple[Path, ...]
    unread: tuple[str, ...]
    connected: int
    missing: tuple[str, ...]
    ranks: tuple[dict[str, Any], ...]
    environment: Mapping[str, tuple[str, ...]]
    findings: frozenset[str]

    def record(self) -> dict[str, Any]:
        """Return paths and ranks as they are stored with a start."""
        return {"paths": [asdict(path) for path in self.paths], "ranks": list(self.ranks)}

    def whole_record(self) -> dict[str, Any]:
        """Return all of it as a baseline keeps it, whose log is judged later (see `restored`)."""
        return {
            **self.record(),
            "silent": list(self.silent),
            "partial": list(self.partial),
            "unread": list(self.unread),
            "connected": self.connected,
            "missing": list(self.missing),
            "environment": {name: list(values) for name, values in self.environment.items()},
            "findings": sorted(self.findings),
        }


def restored(record: Mapping[str, Any]) -> Connected:
    """Return what `whole_record` stored.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: it is no such record.
    """
    return Connected(
        silent=tuple(record["silent"]),
        partial=tuple(record["partial"]),
        paths=tuple(
            Path(**{**path, "devices": tuple(path["devices"]), "unnamed": tuple(path["unnamed"])})
            for path in record["paths"]
        ),
        unread=tuple(record["unread"]),
        connected=int(record["connected"]),
        missing=tuple(record["missing"]),
        ranks=tuple(record["ranks"]),
        environment={name: tuple(values) for name, values in record["environment"].items()},
        findings=frozenset(record["findings"]),
    )


def connected(logs: Mapping[str, str], unplaced: Sequence[str] = ()) -> Connected:
    """Return what the logs of a server's nodes show.

    Only lines that say `via` count, which NCCL writes for each channel when it sets it up
    (`src/transport/{net,p2p,shm,coll_net}.cc`); a network that is loaded, or a device that was
    found, does not.

    Args:
        logs: the log of the rank on each node, by node.
        unplaced: lines of connections that cannot be given to a node.
    """
    read = {node: read_log(clean(text), []) for node, text in logs.items()}
    places: dict[int, set[Place]] = {}
    for node, log in read.items():
        for rank, hosts in _hosts(log).items():
            places.setdefault(rank, set()).update((node, host) for host in hosts)
    one_host = len(read) == 1 and all(len(log.hosts) < 2 for log in read.values())
    environment: dict[str, dict[str, None]] = {}
    for log in read.values():
        for name, values in log.environment.items():
            environment.setdefault(name, {}).update(values)
    return Connected(
        silent=tuple(node for node, log in read.items() if not log.messages),
        partial=tuple(node for node, text in logs.items() if _LEFT_OUT.search(text)),
        paths=tuple(
            path for node, log in read.items() for path in _paths(node, log, places, one_host)
        ),
        unread=tuple(_unread(read, unplaced)),
        connected=ranks_connected(read),
        missing=tuple(missing_ranks(read)),
        ranks=tuple(row for node, log in read.items() for row in _ranks(node, log)),
        environment={name: tuple(sorted(values)) for name, values in environment.items()},
        findings=frozenset(str(found["class"]) for log in read.values() for found in log.findings),
    )


def _unread(read: Mapping[str, Log], unplaced: Sequence[str]) -> Iterator[str]:
    """Yield how many lines of connections are left out, and the first of them."""
    for node, log in read.items():
        if lines := log.unread:
            said = f"{len(lines)} lines of connections in the log of {node} are broken"
            yield f"{said}: {_cut(lines[0])}"
    if unplaced:
        yield f"{len(unplaced)} lines of connections are of no known node: {_cut(unplaced[0])}"


def _cut(line: str) -> str:
    return repr(line[:_SHOWN_CHARS])


def _hosts(log: Log) -> Mapping[int, set[str]]:
    """Return the hosts of each rank; a name counts for one machine unless several share it."""
    return log.rank_hosts if len(log.hosts) < 2 else log.known_hosts()


def _paths(node: str, log: Log, places: Mapping[int, set[Place]], one_host: bool) -> list[Path]:
    groups: dict[tuple[Scope, str], list[Link]] = {}
    for link in log.links:
        where: Scope = "intra_node" if one_host else _scope(link, node, places)
        groups.setdefault((where, link.path), []).append(link)
    found = []
    for (where, path), links in sorted(groups.items()):
        sends = [link for link in links if link.own_rank == link.source]
        receives = [link for link in links if link.own_rank != link.source]
        found.append(
            Path(
                node=node,
                scope=where,
                path=path,
                links=len(links),
                channels=len({link.channel for link in links}),
                devices=_devices(map(log.link_device_name, links)),
                unnamed=tuple(sorted(set(_unnamed(log, links)))),
                sends=len(sends),
                gdr_send=sum(link.gdrdma is True for link in sends),
                receives=len(receives),
                gdr_receive=sum(link.gdrdma is True for link in receives),
            )
        )
    return found


def _scope(link: Link, node: str, places: Mapping[int, set[Place]]) -> Scope:
    """Return whether a connection that a node's log shows leaves that node.

    Shared memory and P2P (but MNNVL) stay within it. A network leaves it unless both ranks are
    known to be in the same place: communicators number their ranks anew, so that one number may be
    in several.
    """
    if scope(link, {}) == "intra_node":
        return "intra_node"
    other = link.target if link.own_rank == link.source else link.source
    own = {place for place in places.get(link.own_rank, ()) if place[0] == node}
    far = places.get(other, set()) if other is not None else set()
    return "intra_node" if len(own) == 1 and own == far else "inter_node"


def _unnamed(log: Log, links: Sequence[Link]) -> Iterator[int]:
    for link in links:
        if link.device is not None and log.link_device_name(link) is None:
            yield link.device


def _devices(names: Iterable[str | None]) -> tuple[str, ...]:
    """Return the names of devices; a virtual one is named by its real ones with `+` between."""
    return tuple(sorted({part for name in names if name for part in name.split("+")}))


def _ranks(node: str, log: Log) -> list[dict[str, Any]]:
    """Return each process and its card, with its rank in its largest communicator."""
    rows = []
    for (host, pid, gpu), process in log.processes.items():
        nics: set[str] = set()
        for network, index in process.network_devices:
            name = log.device_name((host, pid), network, index)
            nics.update(_devices([name]) or (f"{network} {index}",))
        rows.append(
            {
                "node": node,
                "rank": max(process.ranks)[1] if process.ranks else None,
                "host": host,
                "pid": pid,
                "gpu": gpu,
                "bus_id": process.bus_id,
                "nics": sorted(nics),
            }
        )
    return sorted(rows, key=lambda row: (row["host"], row["pid"] or 0, row["gpu"] or 0))
