"""numastat: counters of pages, or MB, per NUMA node."""

import re

from servemap.parsers.cells import Number, key, number
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

_HEADING = re.compile(r"(?:PID\s+)?(?:\s*node ?[0-9]+)+(?:\s+total)?", re.IGNORECASE)
_NODE = re.compile(r"node ?([0-9]+)|total", re.IGNORECASE)
# A counter or a kind of memory of one word, or a process as PID (NAME).
_LABEL = re.compile(r"[A-Za-z][\w()]{0,60}|[0-9]{1,10} \(.{1,200}")
_RULE = re.compile(r"[\s-]+")
# numastat(8): "MBs" are of 1048576 bytes.
_MB = 1048576


def parse_numastat(text: str) -> Extract:
    """NUMA counters and memory per node.

    `tables`: one a heading line, each `title` (the line `Per-node ...` before it, else null) and
    `nodes`, {node number or `total`: {row: value}}. Rows are named as printed, in lower case:
    `numa_hit_pages`, or `numa_hit_bytes` where numastat says MBs. numastat's counters are
    cumulative since boot.

    Raises:
        ParseError: there is no heading that names nodes.
    """
    tables: list[dict[str, object]] = []
    skipped: list[Skipped] = []
    nodes: dict[str, dict[str, Number | None]] = {}
    title: str | None = None
    right_edge = 0
    unended = cut_line(text)
    for line, row in numbered(text):
        if line == unended and len(row) < right_edge:
            skipped.append(Skipped(line, "a line without its end"))
        elif _HEADING.fullmatch(row):
            names = [match[1] or "total" for match in _NODE.finditer(row)]
            nodes = {name: {} for name in names}
            right_edge = len(row)
            tables.append({"title": title, "nodes": nodes})
        elif row.startswith("Per-node "):
            title, nodes = row.rstrip(":"), {}
        elif not _RULE.fullmatch(row) and (reason := _read_row(row, nodes, _is_in_mb(title, row))):
            skipped.append(Skipped(line, reason))
    if not tables:
        raise foreign("numastat", "line that names the NUMA nodes")
    return Extract({"tables": tables}, skipped)


def _is_in_mb(title: str | None, row: str) -> bool:
    """Return whether a row is in MBs: its table says so, or the names begin with capitals."""
    return row.lstrip()[:1].isupper() if title is None else "MBs" in title


def _read_row(row: str, nodes: dict[str, dict[str, Number | None]], in_mb: bool) -> str | None:
    """Put a row's values into `nodes`; return the reason where it has none."""
    if not nodes:
        return "no heading before it"
    words = row.split()
    printed = " ".join(words[: -len(nodes)])
    label = key(printed)
    values = [found for found in map(number, words[-len(nodes) :]) if found is not None]
    known = _LABEL.fullmatch(printed) and (in_mb or not any(isinstance(v, float) for v in values))
    if not label or not known or len(values) < len(nodes):
        return "no row of this table, or cut"
    for node, value in zip(nodes.values(), values, strict=True):
        if in_mb:
            node[f"{label}_bytes"] = round(value * _MB)
        else:
            node[f"{label}_pages"] = value
    return None
