"""Time series of one repeat for the telemetry figures."""

from typing import NamedTuple

from servemap.analysis.metrics import INJECTED
from servemap.analysis.repeats import Repeat
from servemap.analysis.store import read_table
from servemap.analysis.telemetry_rows import collectors_of, gap_rows
from servemap.analysis.telemetry_store import read_telemetry_series
from servemap.parsers.values import integer
from servemap.telemetry.align import AlignedSeries
from servemap.telemetry.catalogue import engine_metrics

PANELS = ("CPU %", "Server CPU % of a core", "Server RSS MiB", "Engine requests", "Network Mbit/s")
PANEL_COLLECTORS = ("proc", "proc", "proc", "engine_metrics", "proc")
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
    if repeat.attempt is None or not repeat.segments:
        return [[] for _ in PANELS]
    gauges = {engine.running: "running" for engine in engine_metrics().values()}
    gauges |= {engine.waiting: "waiting" for engine in engine_metrics().values()}
    nodes = len({node for node, _ in collectors_of(repeat)})
    for one in read_telemetry_series(repeat.folder / "telemetry.parquet", repeat.attempt):
        metric, entity = one.metric, one.entity
        prefix = f"{one.node} " if nodes > 1 else ""
        if metric == "cpu_util" and entity == "cpu_all":
            panels[0].setdefault(f"{prefix}all cores", {}).update(_points(one))
        elif metric == "cpu_util":
            core = busiest.setdefault(f"{prefix}busiest core", {})
            for t_ns, value in _points(one).items():
                core[t_ns] = max(core.get(t_ns, value), value)
        elif metric == "proc_cpu" and entity == "server":
            panels[1].setdefault(f"{prefix}server", {}).update(_points(one))
        elif metric == "proc_rss" and entity == "server":
            panels[2].setdefault(f"{prefix}server", {}).update(_points(one, 2**-20))
        elif metric in gauges:
            line = engine.setdefault(f"{prefix}{gauges[metric]}", {})
            for t_ns, value in _points(one).items():
                line.setdefault(t_ns, {})[entity] = value
        elif metric in ("net_rx", "net_tx"):
            direction = "in" if metric == "net_rx" else "out"
            name = f"{prefix}{entity} {direction}"
            panels[4].setdefault(name, {}).update(_points(one, 8 / 1e6))
    panels[0] |= busiest
    # Data-parallel ranks report one series each; together they are the server.
    panels[3] = {
        name: {t: sum(ranks.values()) for t, ranks in line.items()} for name, line in engine.items()
    }
    panels[4] = {name: line for name, line in panels[4].items() if any(line.values())}
    start = integer(repeat.segments[0].get("start_ns")) or 0
    return [_lines(panel, start) for panel in panels]


def _points(one: AlignedSeries, scale: float = 1.0) -> Points:
    return dict(zip(one.t_ns.tolist(), (one.value * scale).tolist(), strict=True))


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


def panel_gaps(repeat: Repeat) -> list[Intervals]:
    """Return for each panel the stretches in which its collector took no sample, as `marks`."""
    edges = marks(repeat)[0]
    if not edges:
        return [[] for _ in PANELS]
    start = integer(repeat.segments[0].get("start_ns")) or 0
    rows = gap_rows(repeat)
    return [
        _since([(r["begin_ns"], r["end_ns"]) for r in rows if r["collector"] == name], start)
        for name in PANEL_COLLECTORS
    ]


def _since(intervals: list[tuple[int, int]], start: int) -> Intervals:
    return [((begin - start) / 1e9, (end - start) / 1e9) for begin, end in intervals]
