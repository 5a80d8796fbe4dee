"""Counters of the kernel in small files: NUMA nodes, TCP and UDP."""

import re
from typing import Any

from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_NUMA = re.compile(r"(?:\S{0,200}/)?node(\d{1,6})/numastat:([a-z_]{1,40}) (\d{1,20})")
_PAIR = re.compile(r"(?:[\w./-]{0,200}:)?([A-Z][A-Za-z0-9]{0,20}): (\S.{0,8000})")
_COUNT = re.compile(r"-?\d{1,20}")


def parse_numa_nodes(text: str) -> Extract:
    """Counters of each NUMA node, from `grep -H . /sys/devices/system/node/node*/numastat`.

    `rows`: `node` and the counters as the kernel names them, in pages since boot: `numa_hit`,
    `numa_miss`, `numa_foreign`, `local_node`, `other_node` (Documentation/admin-guide/numastat.rst
    of Linux).

    Raises:
        ParseError: there is no line of such a file.
    """
    rows: dict[int, dict[str, Any]] = {}
    skipped: list[Skipped] = []
    for line, said in ended(text, skipped):
        found = _NUMA.fullmatch(said)
        if found is None:
            skipped.append(Skipped(line, "no counter of a NUMA node"))
            continue
        node = int(found[1])
        rows.setdefault(node, {"node": node})[found[2]] = int(found[3])
    if not rows:
        raise foreign("numa-nodes", "line `.../node0/numastat:numa_hit ...`")
    return Extract({"rows": list(rows.values())}, skipped)


def parse_tcp_counters(text: str) -> Extract:
    """Counters of the network stack, from `grep -H . /proc/net/snmp /proc/net/netstat`.

    `rows`: one, with the counters as PROTOCOL.NAME: `Tcp.RetransSegs`, `TcpExt.TCPTimeouts`. The
    kernel writes a line of names and below it one of values for each protocol (proc(5)); pairs of
    different length give nothing.

    Raises:
        ParseError: there is no such pair.
    """
    row: dict[str, int] = {}
    skipped: list[Skipped] = []
    names: tuple[str, list[str]] | None = None
    for line, said in ended(text, skipped):
        found = _PAIR.fullmatch(said)
        words = found[2].split() if found else []
        if found is None:
            skipped.append(Skipped(line, "no counters of a protocol"))
            names = None
        elif not all(map(_COUNT.fullmatch, words)):
            names = (found[1], words)
        elif names is None or names[0] != found[1] or len(names[1]) != len(words):
            skipped.append(Skipped(line, "values without the line of their names"))
        else:
            row.update(
                (f"{found[1]}.{name}", int(word))
                for name, word in zip(names[1], words, strict=True)
            )
            names = None
    if not row:
        raise foreign("tcp-counters", "line of names and one of values, such as `Tcp: ...`")
    return Extract({"rows": [row]}, skipped)
