"""Time series of one repeat for the telemetry figures."""

from typing import NamedTuple

from servemap.analysis.metrics import INJECTED
from servemap.analysis.repeats import Repeat
from servemap.analysis.store import read_table
from servemap.parsers.values import integer
from servemap.telemetry.catalogue import engine_metrics

PANELS = ("CPU %", "Server CPU % of a core", "Server RSS MiB", "Engine requests", "Network Mbit/s")
_MOST_SERIES = 6

Points = dict[int, float]


class Series(NamedTuple):
    """One line: its name, seconds since the first segment began, and values."""

    name: str
    seconds: list[float]
    values: list[float]


def panel_series(repeat: Repeat) -> list[list[Series]]:
    """Return the lines of each panel; all empty where there is no telemetry."""
    panels: list[dict[str, Points]] = [{} for _ in PANELS]
    busiest: dict[str, Points] = {}
    engine: dict[str, dict[int, dict[str, float]]] = {}
    table = None
    if repeat.attempt is not None:
        table = read_table(repeat.folder / "telemetry.parquet", repeat.attempt)
    if table is None or not repeat.segments:
        return [[] for _ in PANELS]
    gauges = {engine.running: "running" for engine in engine_metrics().values()}
    gauges |= {engine.waiting: "waiting" for engine in engine_metrics().values()}
    names = ("node", "entity", "metric", "t_ns", "value")
    columns = [table[name].to_pylist() for name in names]
    nodes = len(set(columns[0]))
    for node, entity, metric, t_ns, value in zip(*columns, strict=True):
        prefix = f"{node} " if nodes > 1 else ""
        if metric == "cpu_util" and entity == "cpu_all":
            panels[0].setdefault(f"{prefix}all cores", {})[t_ns] = value
        elif metric == "cpu_util":
            core = busiest.setdefault(f"{prefix}busiest core", {})
            core[t_ns] = max(core.get(t_ns, value), value)
        elif metric == "proc_cpu" and entity == "server":
            panels[1].setdefault(f"{prefix}server", {})[t_ns] = value
        elif metric == "proc_rss" and entity == "server":
            panels[2].setdefault(f"{prefix}server", {})[t_ns] = value / 2**20
        elif metric in gauges:
            name = f"{prefix}{gauges[metric]}"
            engine.setdefault(name, {}).setdefault(t_ns, {})[entity] = value
        elif metric in ("net_rx", "net_tx"):
            direction = "in" if metric == "net_rx" else "out"
            panels[4].setdefault(f"{prefix}{entity} {direction}", {})[t_ns] = value * 8 / 1e6
    panels[0] |= busiest
    # Data-parallel ranks report one series each; together they are the server.
    panels[3] = {
        name: {t: sum(ranks.values()) for t, ranks in line.items()} for name, line in engine.items()
    }
    panels[4] = {name: line for name, line in panels[4].items() if any(line.values())}
    start = integer(repeat.segments[0].get("start_ns")) or 0
    return [_lines(panel, start) for panel in panels]


def _lines(panel: dict[str, Points], start_ns: int) -> list[Series]:
    busy = sorted(panel.items(), key=lambda item: -max(item[1].values()))[:_MOST_SERIES]
    kept = [name for name in panel if name in dict(busy)]
    return [
        Series(
            name,
            [round((t - start_ns) / 1e9, 3) for t in sorted(panel[name])],
            [round(panel[name][t], 3) for t in sorted(panel[name])],
        )
        for name in kept
    ]


Intervals = list[tuple[float, float]]


def marks(repeat: Repeat) -> tuple[Intervals, Intervals]:
    """Return the segments and the injected requests as seconds since the first segment began."""
    edges = [
        (integer(segment.get("start_ns")), integer(segment.get("end_ns")))
        for segment in repeat.segments
    ]
    known = [(a, b) for a, b in edges if a is not None and b is not None]
    if not known:
        return [], []
    start = known[0][0]
    injected: list[tuple[int, int]] = []
    names = ("stream", "sent_ns", "last_ns")
    table = read_table(repeat.folder / "requests.parquet", repeat.attempt, names)
    if table is not None:
        columns = [table[name].to_pylist() for name in names]
        injected = [
            (sent, last)
            for stream, sent, last in zip(*columns, strict=True)
            if stream == INJECTED and sent is not None and last is not None
        ]
    return _since(known, start), _since(injected, start)


def _since(intervals: list[tuple[int, int]], start: int) -> Intervals:
    return [((begin - start) / 1e9, (end - start) / 1e9) for begin, end in intervals]
