"""Which process is meant: a pid alone is reused, pid + start time within one boot is not."""

import os
from typing import Dict, List, NamedTuple, Optional


class Stat(NamedTuple):
    """Fields of /proc/PID/stat (proc(5)); times in clock ticks, rss in pages."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    utime: int
    stime: int
    threads: int
    start: int
    rss_pages: int


def parse_stat(text: str) -> Stat:
    """Parse one /proc/PID/stat; comm may hold spaces and parentheses. ValueError if it is not."""
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < 22:
        raise ValueError("not a /proc/PID/stat line")
    return Stat(
        pid=int(text[:opening]),
        comm=text[opening + 1 : closing],
        state=fields[0],
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        utime=int(fields[11]),
        stime=int(fields[12]),
        threads=int(fields[17]),
        start=int(fields[19]),
        rss_pages=int(fields[21]),
    )


def read_stat(pid: int) -> Optional[Stat]:
    """Return the stat of a process, zombies included; None when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as handle:
            return parse_stat(handle.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None


def is_alive(pid: int, start: int) -> bool:
    """Say whether the process with this pid and start time still runs (a zombie does not)."""
    stat = read_stat(pid)
    return stat is not None and stat.start == start and stat.state not in "ZX"


def all_stats() -> List[Stat]:
    """Return the stat of every process that can be seen."""
    found = (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [stat for stat in found if stat is not None]


def descendants(root: int, stats: List[Stat]) -> List[Stat]:
    """Return the processes below `root` (itself excluded), parents before children."""
    children: Dict[int, List[Stat]] = {}
    for stat in stats:
        children.setdefault(stat.ppid, []).append(stat)
    found: List[Stat] = []
    pending = [root]
    while pending:
        below = children.pop(pending.pop(0), [])
        found.extend(below)
        pending.extend(stat.pid for stat in below)
    return found


def mark_of(pid: int, name: str) -> Optional[str]:
    """Return a variable of the environment that a process was started with.

    None where it has none of that name, has ended or may not be looked into.
    """
    prefix = name.encode() + b"="
    try:
        with open("/proc/%d/environ" % pid, "rb") as handle:
            variables = handle.read().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode("utf-8", "replace")
    return None


def machine_boot_id() -> str:
    """Return the kernel's id of this boot: pids and start times of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
        return handle.read().strip()
