"""Who listens on a port: pure functions over a node's `/proc`, and a reader for this machine."""

import ipaddress
import os
import pwd
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
_SOCKET = re.compile(r"^socket:\[(\d+)\]$")
_SECRET = re.compile(r"(?i)(-[\w-]*(?:key|token|secret|password)[\w-]*)([= ])\S+")


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; `inode` names the socket, `uid` the user that opened it."""

    address: str
    port: int
    inode: int
    uid: int


@dataclass(frozen=True)
class Process:
    """A process; `start` is field 22 of `/proc/PID/stat`, which with the pid identifies it."""

    pid: int
    ppid: int
    start: int
    state: str
    command: str
    user: str


@dataclass(frozen=True)
class NodeView:
    """What a node's `/proc` says at one moment.

    Attributes:
        tcp: text of `/proc/net/tcp`.
        tcp6: text of `/proc/net/tcp6`.
        sockets: pids that hold a socket, by its inode; only of processes that may be inspected.
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
        if len(fields) < 10 or fields[3] != _LISTEN:
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


def parse_stat(text: str) -> tuple[int, str, int] | None:
    """Return parent pid, state and start time of `/proc/PID/stat`; None for anything else.

    The command in the second field may hold spaces and brackets, so fields count from its end.
    """
    fields = text[text.rfind(")") + 1 :].split()
    try:
        return int(fields[1]), fields[0], int(fields[19])
    except (IndexError, ValueError):
        return None


def is_running(processes: Mapping[int, Process], pid: int, start: int) -> bool:
    """Return whether this very process runs: the same start time, and not a zombie."""
    process = processes.get(pid)
    return process is not None and process.start == start and process.state not in "ZX"


def user_name(uid: int) -> str:
    """Return a user's name, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_process(pid: int) -> Process | None:
    """Return a process of this machine; None if it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        words = (folder / "cmdline").read_bytes().split(b"\0")
        uid = folder.stat().st_uid
    except OSError:
        return None
    stat = parse_stat(text)
    if stat is None:
        return None
    command = b" ".join(word for word in words if word).decode("utf-8", "replace")
    # A zombie and a kernel thread have no command line: their short name is in brackets.
    command = _SECRET.sub(r"\1\2***", command) or text[text.find("(") : text.rfind(")") + 1]
    parent, state, start = stat
    return Process(pid, parent, start, state, command[:160], user_name(uid))


def read_local_view() -> NodeView:
    """Return the view of this machine, as far as this user may see it."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    processes = {pid: process for pid in pids if (process := read_process(pid)) is not None}
    return NodeView(
        _read_text(Path("/proc/net/tcp")),
        _read_text(Path("/proc/net/tcp6")),
        _socket_holders(processes),
        processes,
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _socket_holders(pids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    holders: dict[int, set[int]] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a Path for each file would be slow here
        except OSError:
            continue
        for name in names:
            try:
                match = _SOCKET.match(os.readlink(f"{folder}/{name}"))  # noqa: PTH115
            except OSError:
                continue
            if match:
                holders.setdefault(int(match[1]), set()).add(pid)
    return {inode: tuple(sorted(found)) for inode, found in holders.items()}
