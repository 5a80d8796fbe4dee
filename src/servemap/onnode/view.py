"""The processes of this machine and who listens on its TCP ports: what `holders` gives as view.

`{"schema", "tcp", "tcp6", "sockets", "processes"}`: the lines of /proc/net/tcp and tcp6 that are
listening sockets, `{inode: [pid]}` of those whose holders may be inspected, and each process as a
list of the fields of `Process`.
"""

import os
import pwd
import re
from functools import lru_cache
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .ident import parse_stat
from .probe import list_folder, read_file
from .redact import redact_text

LISTEN = "0A"
MAX_COMMAND_CHARS = 600
_SOCKET = re.compile(r"^socket:\[(\d+)\]$")


class Process(NamedTuple):
    """A process; `start` is field 22 of `/proc/PID/stat`, which with the pid identifies it."""

    pid: int
    ppid: int
    start: int
    state: str
    command: str
    user: str


@lru_cache(maxsize=None)
def user_name(uid: int) -> str:
    """Return a user's name, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def shortened(command: str) -> str:
    """Return a long command cut after a whole word, and where it was cut said so."""
    if len(command) <= MAX_COMMAND_CHARS:
        return command
    kept = command[: MAX_COMMAND_CHARS + 1]
    whole = kept.rpartition(" ")[0]
    return (whole or kept[:MAX_COMMAND_CHARS]) + " ..."


def read_process(pid: int) -> Optional[Process]:
    """Return a process of this machine, credentials taken out of its command; None if gone."""
    folder = "/proc/%d" % pid
    try:
        with open(folder + "/stat", "rb") as handle:
            stat = parse_stat(handle.read().decode("utf-8", "replace"))
        with open(folder + "/cmdline", "rb") as handle:
            words = handle.read().split(b"\0")
        uid = os.stat(folder).st_uid
    except (OSError, ValueError):
        return None
    command = b" ".join(word for word in words if word).decode("utf-8", "replace")
    # A zombie and a kernel thread have no command line: their short name is in brackets.
    command = redact_text(command) or "(%s)" % stat.comm
    return Process(pid, stat.ppid, stat.start, stat.state, shortened(command), user_name(uid))


def read_processes() -> Dict[int, Process]:
    """Return all processes of this machine by pid."""
    found = (read_process(int(name)) for name in list_folder("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def open_files(pid: int) -> Optional[Iterator[str]]:
    """Yield what a process's open files are links to; None where it may not be inspected."""
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    return _links(folder, names)


def _links(folder: str, names: List[str]) -> Iterator[str]:
    for name in names:
        try:
            yield os.readlink(folder + "/" + name)
        except OSError:
            continue


def listening(text: str) -> Tuple[str, Set[int]]:
    """Return the lines of /proc/net/tcp or tcp6 that are listening sockets, and their inodes."""
    kept, inodes = [], set()
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 10 and fields[3] == LISTEN and fields[9].isdecimal():
            kept.append(line + "\n")
            inodes.add(int(fields[9]))
    return "".join(kept), inodes


def socket_holders(inodes: Set[int], pids: List[int]) -> Dict[int, List[int]]:
    """Return {inode: pids} of the processes that hold these sockets open."""
    holders: Dict[int, Set[int]] = {}
    for pid in pids:
        for goal in open_files(pid) or ():
            match = _SOCKET.match(goal)
            if match and int(match.group(1)) in inodes:
                holders.setdefault(int(match.group(1)), set()).add(pid)
    return {inode: sorted(found) for inode, found in holders.items()}


def read_view() -> Dict[str, Any]:
    """Return the view of this machine, as far as this user may see it."""
    tcp, inodes = listening(read_file("/proc/net/tcp") or "")
    tcp6, inodes6 = listening(read_file("/proc/net/tcp6") or "")
    processes = read_processes()
    return {
        "schema": 1,
        "tcp": tcp,
        "tcp6": tcp6,
        "sockets": socket_holders(inodes | inodes6, list(processes)),
        "processes": list(processes.values()),
    }
