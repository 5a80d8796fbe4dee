"""Connections between ranks as NCCL logs them: the path, the device, within a node or not."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

_LINK = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d{1,4})(?:/\d{1,4})? ?: "
    r"(?P<source>\d{1,7})(?:\[[0-9a-f]{1,16}\])?"
    r" -> (?P<target>\d{1,7})(?:\[[0-9a-f]{1,16}\])?(?: \[(?P<direction>send|receive)\])?"
    r" via (?P<via>(?:NET|P2P|SHM)/.{1,120}?|direct shared memory)"
    r"(?: comm 0x[0-9a-f]{1,20} nRanks \d{1,7})?"
)
_COLLNET = re.compile(
    r"CollNet (?P<channel>\d{1,4})(?:/\d{1,4})? ?: "
    r"(?P<source>\d{1,7}) \[(?P<direction>send|receive)\] via (?P<via>COLLNET/.{1,120})"
)
# A line that names two ranks, or a path, is of a connection even where the rest of it is broken.
_TOLD = re.compile(
    r"(?:Channel|Ring) \d{1,4}(?:/\d{1,4})? ?: ?"
    r"\d{1,7}(?:\[[^\]]{0,16}\]?)? ?-> ?\d{1,7}(?!\d| ->)"
    r"|CollNet \d{1,4}(?:/\d{1,4})? ?: ?\d{1,7} \["
    r"|-> ?\d{1,7}(?:\[[^\]]{0,16}\])?(?: \[(?:send|receive)\])? via\b"
    r"|\bvia (?:(?:NET|P2P|SHM|COLLNET)/|direct shared memory)"
)
# What NCCL writes after a path: GDRDMA(PCI), Shared, read, flush=None, 3[b000].
_OPTION = re.compile(r"[\w. +()=\[\]-]{1,80}")
_NET_DEVICE = re.compile(r"(\d{1,4})(?:\(\d{1,7}\))?")


class Link(NamedTuple):
    """One direction of one channel between two ranks, logged by one of them.

    `host` and `pid` are of that one, None where the line does not say them. `path` is the
    transport and its kind (`NET/IB`, `P2P/CUMEM`, `SHM/direct`), `options` what follows it.
    `device` is the index of the network device, `gdrdma` whether the data go straight between card
    and network device; both are None where there is no network.
    """

    own_rank: int
    source: int
    target: int | None
    channel: int
    path: str
    device: int | None
    gdrdma: bool | None
    options: tuple[str, ...]
    host: str | None = None
    pid: int | None = None


def read_link(message: str) -> Link | None:
    """Return the connection that a message names (`src/transport/{net,p2p,shm,coll_net}.cc`)."""
    found = _LINK.fullmatch(message) or _COLLNET.fullmatch(message)
    if found is None:
        return None
    via = "SHM/direct" if found["via"] == "direct shared memory" else found["via"]
    parts = via.split("/")
    if not all(map(_OPTION.fullmatch, parts)):
        return None
    source = int(found["source"])
    target = int(found["target"]) if "target" in found.re.groupindex else None
    device, options, gdrdma = None, parts[2:], None
    if parts[0] in ("NET", "COLLNET"):
        index = _NET_DEVICE.fullmatch(options[0]) if options else None
        if index is None:
            return None
        device, options = int(index[1]), options[1:]
        if any(option and "GDRDMA".startswith(option) for option in options if option != "GDRDMA"):
            return None
        # Since 2.28 it may say how: GDRDMA(PCI).
        gdrdma = any(option.partition("(")[0] == "GDRDMA" for option in options)
    own = target if found["direction"] == "receive" and target is not None else source
    channel, path = int(found["channel"]), "/".join(parts[:2])
    return Link(own, source, target, channel, path, device, gdrdma, tuple(options))


def tells_link(message: str) -> bool:
    """Return whether a text names a connection, whole or broken."""
    return ("->" in message or "via " in message or "CollNet" in message) and bool(
        _TOLD.search(message)
    )


def scope(link: Link, hosts: Mapping[int, set[str]]) -> str:
    """Return `intra_node` or `inter_node`.

    By the hosts of both ranks where they are known; else by the transport, since shared memory
    and P2P are within a node and NCCL takes the network between nodes. Only P2P/MNNVL
    crosses nodes over NVLink.
    """
    ends = (link.source, link.target)
    names = [hosts.get(rank, set()) for rank in ends if rank is not None]
    if len(names) == 2 and all(len(name) == 1 for name in names):
        return "intra_node" if names[0] == names[1] else "inter_node"
    return "inter_node" if link.path.startswith(("NET/", "COLLNET/", "P2P/MNNVL")) else "intra_node"


def summarised(
    links: Iterable[Link],
    hosts: Mapping[int, set[str]],
    name_of: Callable[[Link], str | None],
) -> list[dict[str, Any]]:
    """Return one entry a path and scope: how many links, pairs, channels, over which devices.

    `name_of` gives the name of a connection's network device.
    """
    groups: dict[tuple[str, str, bool | None], list[Link]] = {}
    for link in links:
        groups.setdefault((scope(link, hosts), link.path, link.gdrdma), []).append(link)
    entries = []
    for (where, path, gdrdma), group in sorted(groups.items(), key=str):
        used = sorted({link.device for link in group if link.device is not None})
        entries.append(
            {
                "scope": where,
                "path": path,
                "gdrdma": gdrdma,
                "links": len(group),
                "pairs": len({(link.source, link.target) for link in group}),
                "ranks": len(
                    {
                        rank
                        for link in group
                        for rank in (link.source, link.target)
                        if rank is not None
                    }
                ),
                "channels": len({link.channel for link in group}),
                "net_devices": used,
                "net_device_names": sorted(filter(None, set(map(name_of, group)))),
                "options": sorted({option for link in group for option in link.options}),
            }
        )
    return entries
