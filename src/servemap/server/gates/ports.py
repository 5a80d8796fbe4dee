"""Who listens on a port of a node, and what runs there: pure functions over a view of it."""

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servemap.onnode.view import LISTEN, Process


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; `inode` names the socket, `uid` the user that opened it."""

    address: str
    port: int
    inode: int
    uid: int


@dataclass(frozen=True)
class NodeView:
    """What a node's `/proc` says at one moment.

    Attributes:
        tcp: lines of `/proc/net/tcp`, those of listening sockets at least.
        tcp6: lines of `/proc/net/tcp6`, likewise.
        sockets: pids that hold a listening socket, by its inode; only of processes that may be
            inspected.
        processes: processes by pid.
    """

    tcp: str
    tcp6: str
    sockets: Mapping[int, tuple[int, ...]]
    processes: Mapping[int, Process]


@dataclass(frozen=True)
class Owner:
    """Who holds a listening socket; `process` is None where only the user's number is known."""

    listener: Listener
    process: Process | None

    @property
    def text(self) -> str:
        """The owner in words."""
        address = f"{self.listener.address} port {self.listener.port}"
        if self.process is None:
            return (
                f"{address}: a process of uid {self.listener.uid}, whose pid this user cannot see"
            )
        process = self.process
        return f"{address}: pid {process.pid} ({process.command}) of user {process.user}"


def parse_listeners(text: str) -> list[Listener]:
    """Return the listening sockets of `/proc/net/tcp` or `tcp6` (format: kernel, proc_net_tcp).

    Lines that are no socket are passed over.
    """
    found: list[Listener] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        try:
            found.append(Listener(_address(address), int(port, 16), int(fields[9]), int(fields[7])))
        except (ValueError, struct.error):
            continue
    return found


def _address(digits: str) -> str:
    """Return an address from its hexadecimal words, each in the byte order of the machine."""
    raw = bytes.fromhex(digits)
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    address = ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def overlaps(address: str, bind: str) -> bool:
    """Return whether a socket on `address` and one on `bind` would get the same connections.

    A host name may be any address, so it overlaps with all; `::` takes IPv4 too.
    """
    try:
        given = ipaddress.ip_address(bind)
    except ValueError:
        return True
    other = ipaddress.ip_address(address)
    if given.version != other.version:
        return any(one.version == 6 and one.is_unspecified for one in (given, other))
    return given == other or given.is_unspecified or other.is_unspecified


def port_owners(view: NodeView, port: int, bind: str) -> list[Owner]:
    """Return who listens on a port, one entry for each process that holds such a socket."""
    owners: list[Owner] = []
    for listener in parse_listeners(view.tcp) + parse_listeners(view.tcp6):
        if listener.port != port or not overlaps(listener.address, bind):
            continue
        pids = view.sockets.get(listener.inode, ())
        processes = [view.processes[pid] for pid in pids if pid in view.processes]
        owners += [Owner(listener, process) for process in processes]
        if not processes:
            owners.append(Owner(listener, None))
    return owners


def process_tree(processes: Mapping[int, Process], root: int) -> frozenset[int]:
    """Return a process and all its descendants; empty if it is not there."""
    if root not in processes:
        return frozenset()
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    tree: set[int] = set()
    queue = [root]
    while queue:
        pid = queue.pop()
        if pid not in tree:
            tree.add(pid)
            queue += children.get(pid, [])
    return frozenset(tree)


def is_running(processes: Mapping[int, Process], pid: int, start: int) -> bool:
    """Return whether this very process runs: the same start time, and not a zombie."""
    process = processes.get(pid)
    return process is not None and process.start == start and process.state not in "ZX"


def parse_view(data: Any) -> NodeView:
    """Return the view that the on-node program gave (see `onnode/view.py`).

    Raises:
        ValueError: it is of another shape.
    """
    try:
        processes = [_process(row) for row in data["processes"]]
        sockets = {
            int(inode): tuple(int(pid) for pid in pids) for inode, pids in data["sockets"].items()
        }
        return NodeView(
            str(data["tcp"]), str(data["tcp6"]), sockets, {item.pid: item for item in processes}
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"not a view of processes and sockets ({error})") from error


def _process(row: Any) -> Process:
    pid, ppid, start, state, command, user = row
    return Process(int(pid), int(ppid), int(start), str(state), str(command), str(user))
