"""What it takes to align a day of telemetry: time and memory.

2 nodes with 8 cards of 30 metrics each and 200 host series, a sample a second for 24 h: 76 million.
The samples are made up, as arrays: reading the collectors' raw lines is not part of it. The nodes'
clocks drift. Aligned is put on the head's clock, cut to the segments, judged for coverage, and made
into the tables' figures; written is telemetry.parquet.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trace import cost, least
from servemap.analysis.parts import WHOLE, Parts
from servemap.analysis.series_figures import series_figures
from servemap.analysis.telemetry_store import write_telemetry
from servemap.parsers.series import Series
from servemap.telemetry.align import AlignedSeries, Segment, align, coverage
from servemap.telemetry.clock import NodeClock

DAY_S = 86_400
CARDS = 8
METRICS = 30
HOST_SERIES = 200
T0 = 1_790_000_000_000_000_000
S = 1_000_000_000
LAYOUTS = {"one_segment_of_24_h": (1, DAY_S), "200_segments_of_5_min": (200, 300)}
TURNS = 2
WALL_LIMIT_S = 30.0
MEMORY_LIMIT_MB = 2000.0


def made_up(node: int) -> dict[str, tuple[Any, list[Series]]]:
    """Return a node's series by collector, those of a collector with the same times."""
    draw = np.random.default_rng(node)
    found = {}
    for name, entities, metrics, rate in (
        ("cards", CARDS, METRICS, False),
        ("host", 1, HOST_SERIES, True),
    ):
        t_ns = T0 + np.arange(DAY_S, dtype=np.int64) * S + draw.integers(0, S // 10, DAY_S)
        begins = np.concatenate(([t_ns[0] - S], t_ns[:-1])) if rate else None
        found[name] = (
            t_ns,
            [
                Series(f"e{entity}", f"m{metric}", "watts", t_ns, begins, draw.random(DAY_S))
                for entity in range(entities)
                for metric in range(metrics)
            ],
        )
    return found


def work(count: int, length_s: int, out: Path) -> dict[str, float]:
    """Align, judge and write; return the seconds of each part and how many samples are inside."""
    gap_s = DAY_S // count
    segments = [
        Segment(f"s{n}", T0 + n * gap_s * S, T0 + (n * gap_s + length_s) * S) for n in range(count)
    ]
    parts = {one.name: Parts(one.start_ns, one.end_ns, []) for one in segments}
    data = [made_up(node) for node in range(2)]
    begun = time.monotonic()
    series: list[AlignedSeries] = []
    for node, collectors in enumerate(data):
        clock = NodeClock(150_000_000, 50_000, 900_000_000, T0, T0 + DAY_S * S)
        for name, (times, own) in collectors.items():
            series += align(f"n{node}", name, own, clock, segments)
            coverage(f"n{node}", name, times, clock, 1.0, segments)
    aligned = time.monotonic()
    inside = sum(series_figures(one, parts[one.segment], WHOLE, 1.0).n for one in series)
    figured = time.monotonic()
    write_telemetry(out, series, 1)
    return {
        "samples_inside": inside,
        "align_s": round(aligned - begun, 2),
        "figures_s": round(figured - aligned, 2),
        "write_s": round(time.monotonic() - figured, 2),
    }


def measure(folder: Path) -> dict[str, Any]:
    """Return wall and processor time, peak memory and the parts of each layout, by turn."""
    figures: dict[str, Any] = {"load_average": [round(os.getloadavg()[0], 2)]}
    for name, (count, length_s) in LAYOUTS.items():
        argv = [sys.executable, "-m", "benchmarks.align", str(count), str(length_s), str(folder)]
        turns = []
        for _ in range(TURNS):
            spent = cost(["env", f"PYTHONPATH={Path.cwd()}", *argv], folder)
            turns.append({**spent, **json.loads((folder / "parts.json").read_text())})
        figures[name] = {"turns": turns}
        figures["load_average"].append(round(os.getloadavg()[0], 2))
    return figures


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the limits that the figures break, by the best turn of each layout."""
    found = []
    for name in LAYOUTS:
        wall, peak = (least(figures[name]["turns"], key) for key in ("wall_s", "peak_mb"))
        if wall > WALL_LIMIT_S:
            found.append(f"align, {name}: {wall} s, limit {WALL_LIMIT_S}")
        if peak > MEMORY_LIMIT_MB:
            found.append(f"align, {name}: {peak} MB, limit {MEMORY_LIMIT_MB}")
    return found


if __name__ == "__main__":
    segments, seconds, where = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    spent = work(segments, seconds, where / "telemetry.parquet")
    (where / "parts.json").write_text(json.dumps(spent))
