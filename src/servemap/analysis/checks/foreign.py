"""Whether other programs took the processor from what was measured."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from servemap.analysis.checks.client import client_cores
from servemap.analysis.verdict import Check
from servemap.telemetry.align import AlignedSeries, Segment

CONTENDED_PERCENT = 85.0
"""Mean use of all cores above which processes wait for one another."""


def check_foreign_load(
    telemetry: Iterable[AlignedSeries],
    segments: Sequence[Segment],
    client: Mapping[str, Any],
    limits: Mapping[str, float],
) -> list[Check]:
    """Check, per node and segment, the share of its cores that neither server nor client used.

    It is judged where the cores were contended; a node with idle cores slows nobody down. Without
    the server's process tree (an attached server) nothing can be said.
    """
    used: dict[tuple[str, str, str], list[float]] = {}
    cores: dict[str, set[str]] = {}
    for one in telemetry:
        if one.collector != "proc" or not one.inside.any():
            continue
        if one.metric == "cpu_util" and one.entity != "cpu_all":
            cores.setdefault(one.node, set()).add(one.entity)
        elif (one.metric, one.entity) in (("cpu_util", "cpu_all"), ("proc_cpu", "server")):
            own = used.setdefault((one.node, one.segment, one.metric), [])
            own.extend(one.value[one.inside].tolist())
    return [
        _check(node, segment.name, used, len(names), client_cores(client) or 0.0, limits)
        for node, names in sorted(cores.items())
        for segment in segments
    ]


def _check(
    node: str,
    segment: str,
    used: Mapping[tuple[str, str, str], list[float]],
    cores: int,
    client_cores: float,
    limits: Mapping[str, float],
) -> Check:
    name, limit = f"foreign_cpu {node} {segment}", limits["foreign_cpu_share"]
    whole = used.get((node, segment, "cpu_util"))
    server = used.get((node, segment, "proc_cpu"))
    if not whole or not server:
        return Check(name, None, limit, None, "the use of the cores by the server is not known")
    busy = fmean(whole) / 100 * cores
    share = max(0.0, busy - fmean(server) / 100 - client_cores) / cores
    if fmean(whole) < CONTENDED_PERCENT:
        return Check(name, share, limit, True, "cores were idle")
    return Check(name, share, limit, share <= limit, "other programs on contended cores")
