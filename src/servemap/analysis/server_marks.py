"""What telemetry says of the server's identity and of its counters, at every sample."""

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from servemap.parsers.jsonl import JsonLine
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.telemetry.catalogue import engine_metrics
from servemap.telemetry.clock import NodeClock

START = "process_start_time_seconds"
"""What Prometheus client libraries call the start of the process that they are part of."""


class Marks(NamedTuple):
    """One sample.

    Attributes:
        node: where it was taken.
        t_ns: when, on the head's clock.
        processes: start times, in ticks, of the server's root processes by pid; None where the
            sample is of the engine, or no roots are known.
        counters: engine counters by name, summed over their series; empty in a sample of processes.
        started_s: when the engine's process says that it started; None where it does not.
    """

    node: str
    t_ns: int
    processes: dict[int, int] | None
    counters: dict[str, float]
    started_s: float | None


def process_mark(
    node: str, line: JsonLine, roots: frozenset[int], clock: NodeClock
) -> Marks | None:
    """Return what the `proc` collector saw of the server's root processes at one sample."""
    t_ns = integer(line.value.get("t_ns"))
    if t_ns is None:
        return None
    seen: dict[int, int] = {}
    for item in map(mapping, sequence(line.value.get("procs"))):
        pid, start = integer(item.get("pid")), integer(item.get("start"))
        if pid in roots and pid is not None and start is not None:
            seen[pid] = start
    return Marks(node, clock.to_head(t_ns), seen, {}, None)


def scrape_mark(node: str, line: JsonLine, clock: NodeClock) -> Marks | None:
    """Return the counters and the process start of a scrape; None of one that brought no text."""
    t_ns, body = integer(line.value.get("t_ns")), text(line.value.get("text"))
    if t_ns is None or body is None:
        return None
    values: dict[str, float] = {}
    for match in _series().finditer(body):
        value = number(_float(match["value"]))
        if value is not None:
            values[match["name"]] = values.get(match["name"], 0.0) + value
    started = values.pop(START, None)
    return Marks(node, clock.to_head(t_ns), None, values, started)


def root_pids(folder: Path) -> frozenset[int]:
    """Return the server's root processes as a node's collectors were told them."""
    try:
        spec = mapping(json.loads((folder / "collect.spec.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return frozenset()
    pids = (integer(pid) for pid in sequence(mapping(spec.get("server")).get("pids")))
    return frozenset(pid for pid in pids if pid is not None)


@cache
def _series() -> re.Pattern[str]:
    """Match the wanted series of a text exposition: name, labels in braces, value."""
    names = {START}
    for own in engine_metrics().values():
        names |= {*own.cache_queries, *([own.preemptions] if own.preemptions else [])}
    wanted = "|".join(sorted(map(re.escape, names)))
    return re.compile(rf"^(?P<name>{wanted})(?:\{{.*\}})?[ \t]+(?P<value>\S+)", re.MULTILINE)


def _float(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
