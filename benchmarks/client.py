"""The load client's speed and accuracy against an emitter that logs what it really sent.

Emitter and client have a core each. An error is what the client says less what the emitter did:
of TTFT (from the client's write to its read of the first token, less the emitter's time from read
to write, so that sending counts), and of each gap between two tokens of a stream.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import client_others
from benchmarks.client_load import CLIENT_CORE, bound, compiled, ours, priority
from servemap.engines.embedded.tiny_hf import write_folder

TRIALS = 3
LOADS: dict[str, tuple[int, float, int, float | None]] = {
    "64 together": (64, 20.0, 64, None),
    "1024 together": (1024, 100.0, 64, None),
    "75/s": (512, 50.0, 64, 75.0),
}
"""Streams, ms between tokens, tokens of an answer, arrivals per second (None: all at once)."""

TTFT_LIMIT_MS = {"64 together": 2.0, "1024 together": 20.0, "75/s": 1.0}
GAP_LIMIT_MS = {"64 together": 0.5, "1024 together": 5.0}
START_LIMIT_S = 1.0
RATIO_LIMIT = 1.5

KNEE_MS = 20.0
"""A client keeps up with a load where P99 of its gaps' errors is below this."""
KNEE_GAP_MS = 20.0
KNEE_TOKENS = 128
STREAMS = {
    "servemap": [1024, 1536, 2048, 2560, 3072],
    "vllm-bench": [512, 640, 768, 1024],
    "sglang-bench": [512, 640, 768, 1024],
    "aiperf": [128, 192, 256, 384],
}
"""Streams tried in turn until one load is too much; each brings 50 tokens a second."""

DRIVEN: list[tuple[str, int, float, int, int]] = [
    ("64 together", 64, 1.0, 1000, 0),
    ("64 together", 64, 0.4, 2500, 0),
    ("64 together", 64, 20.0, 64, 1),
    ("1024 together", 1024, 20.0, 64, 0),
    ("1024 together", 1024, 5.0, 120, 0),
    ("1024 together", 1024, 4.0, 150, 0),
    ("1024 together", 1024, 100.0, 48, 1),
]
"""Whose limits, streams, ms between tokens, tokens, busy programs on the client's core."""

Json = dict[str, Any]


def can_measure() -> bool:
    """Tell whether this machine has a C compiler, `taskset` and two cores."""
    return bool(shutil.which("cc") and shutil.which("taskset")) and (os.cpu_count() or 1) > 1


def measure(folder: Path) -> Json:
    """Measure everything; `folder` takes what is written."""
    program = compiled(folder)
    loads = [os.getloadavg()[0]]
    trials = {
        name: [
            ours(program, folder / f"{name}-{turn}".replace("/", "-"), *load)
            for turn in range(TRIALS)
        ]
        for name, load in LOADS.items()
    }
    driven = [
        _driven(program, folder / f"driven-{turn}", *load) for turn, load in enumerate(DRIVEN)
    ]
    knees = {"servemap": _knee("servemap", program, folder, folder)}
    tokenizer = folder / "tokenizer"
    write_folder(tokenizer)
    for name in client_others.named():
        knees[name] = _knee(name, program, folder, tokenizer)
    loads.append(os.getloadavg()[0])
    others = [knee["events_per_s"] for name, knee in knees.items() if name != "servemap"]
    best = max((rate for rate in others if rate is not None), default=None)
    own = knees["servemap"]["events_per_s"]
    return {
        "priority": priority(),
        "load_average": [round(load, 2) for load in loads],
        "accuracy": {name: _best(rows) for name, rows in trials.items()},
        "trials": trials,
        "knees": knees,
        "ratio": round(own / best, 2) if own and best else None,
        "driven": driven,
    }


def _best(rows: list[Json]) -> Json:
    """Return P99 of the errors and the overhead of the best trial, each beside all trials'."""
    figures = {
        "ttft_error_p99_ms": [row["ttft_error_ms"]["p99"] for row in rows],
        "gap_error_p99_ms": [row["gap_error_ms"]["p99"] for row in rows],
        "overhead_s": [row["overhead_s"] for row in rows],
    }
    return {name: {"best": min(values), "all": values} for name, values in figures.items()}


def _knee(name: str, program: Path, folder: Path, tokenizer: Path) -> Json:
    """Return the highest rate that a client keeps up with, and the loads that were tried.

    A load that is too much is tried once more: on a shared machine one bad turn says little.
    """
    tried: list[Json] = []
    reached: int | None = None
    for streams in STREAMS[name]:
        for turn in range(2):
            own = folder / f"{name}-{streams}-{turn}"
            if name == "servemap":
                row = ours(program, own, streams, KNEE_GAP_MS, KNEE_TOKENS, None)
            else:
                row = client_others.measure(
                    name, program, own, tokenizer, streams, KNEE_GAP_MS, KNEE_TOKENS
                )
            tried.append(row)
            good = row["gap_error_ms"]["p99"] < KNEE_MS
            if good:
                reached = max(reached or 0, row["events_per_s"])
                break
        if not good:
            break
    return {"events_per_s": reached, "tried": tried}


def _driven(
    program: Path, folder: Path, name: str, streams: int, gap_ms: float, tokens: int, busy: int
) -> Json:
    """Measure one load that is too much, or beside programs on the client's core.

    `exceeded`: an error is beyond its limit. `told`: the client's own figures say so, by 1 in 200
    reads that were later than the limit of a gap, or by its processor time.
    """
    with _neighbours(busy):
        row = ours(program, folder, streams, gap_ms, tokens, None)
    exceeded = (
        row["ttft_error_ms"]["p99"] > TTFT_LIMIT_MS[name]
        or row["gap_error_ms"]["p99"] > GAP_LIMIT_MS[name]
    )
    late = row["said"]["late_ms"]
    told = row["said"]["window_cpu_share"] > 0.9 or (
        late is not None and late["p995"] > GAP_LIMIT_MS[name]
    )
    return {"limits_of": name, "busy_neighbours": busy, "exceeded": exceeded, "told": told, **row}


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    """Keep programs busy on the client's core, at its priority, for 10 s at most."""
    code = "import time\nend = time.time() + 10\nwhile time.time() < end: pass"
    running = [
        subprocess.Popen(bound(CLIENT_CORE, [sys.executable, "-c", code])) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def broken(figures: Json) -> list[str]:
    """Return the limits that the figures break."""
    found = []
    for name, best in figures["accuracy"].items():
        for what, limit in (
            ("ttft_error_p99_ms", TTFT_LIMIT_MS[name]),
            ("gap_error_p99_ms", GAP_LIMIT_MS.get(name)),
            ("overhead_s", START_LIMIT_S),
        ):
            value = best[what]["best"]
            if limit is not None and value > limit:
                found.append(f"client, {name}: {what} {value}, limit {limit}")
    ratio = figures["ratio"]
    if ratio is not None and ratio < RATIO_LIMIT:
        found.append(f"client: {ratio} times the best of others, limit {RATIO_LIMIT}")
    silent = [row for row in figures["driven"] if row["exceeded"] and not row["told"]]
    found += [
        f"client: wrong beyond its limits at {row['streams']} x {row['gap_ms']} ms, and did not say"
        for row in silent
    ]
    return found
