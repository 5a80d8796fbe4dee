"""What it takes to make requests.parquet and metrics.json of a large case: time and memory.

The case is made up: 100,000 answers of 201 tokens, 20 million ITL values, in the form that the load
client writes, with a cumulative count on every event. Telemetry is not part of it.
"""

import hashlib
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trace import cost, least

REQUESTS = 100_000
TOKENS = 201
TURNS = 3
WALL_LIMIT_S = 10.0
MEMORY_LIMIT_MB = 2000.0

T0 = 1_790_000_000_000_000_000
FIRST_NS = 30_000_000
GAP_NS = 20_000_000

# `several` tokens in some events is what speculative decoding sends: its ITL are not its gaps.
LOADS = {"one_token_an_event": 1, "several_tokens_an_event": 4}

DERIVE = """
import json, sys
from pathlib import Path
from servemap.analysis.derive import derive_attempt
options = {"slo": {"ttft_s": 0.05, "itl_p99_s": 0.03}, "token": 0, "weights":
           {"uncached_input": 2.8, "cached_input": 0.56, "output": 16.8}}
derive_attempt(Path(sys.argv[1]), options)
"""


def write_case(folder: Path, most: int, requests: int) -> None:
    """Write the raw files and the record of one repeat below `folder`.

    Args:
        folder: cases/VARIANT/CASE/rK.
        most: tokens that an event brings at most; how many is drawn.
        requests: number of answers.
    """
    raw = folder / "attempts" / "001" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(7)
    end = T0
    with (raw / "requests.jsonl").open("w") as out:
        for number in range(requests):
            sent = T0 + number * 1_000_000
            times, counts = _answer(rng, sent, most)
            end = max(end, times[-1])
            out.write(_line(number, sent, times, counts))
    segment = {"name": "main", "start_ns": T0, "end_ns": end}
    stream = {"name": "main", "kind": "closed", "isl": 512, "osl": TOKENS}
    load = {"request": {"ignore_eos": True}, "segments": [{"name": "main", "streams": [stream]}]}
    client = {
        "status": "ok",
        "started_ns": T0,
        "ended_ns": end,
        "segments": [segment],
        "counts": {"sent": requests},
        "cpu_s": 0.3 * (end - T0) / 1e9,
        "max_lag_ms": 1.0,
    }
    for name, value in (("load", load), ("client", client)):
        (raw / f"{name}.json").write_text(json.dumps({"schema": 1, **value}))
    meta = {
        "schema": 1,
        "run": "big",
        "variant": "baseline",
        "case": "big",
        "repeat": 1,
        "attempt": 1,
        "status": "ok",
        "reasons": [],
        "spec": {"case": {"kind": "fixed", "isl": 512, "osl": TOKENS, "concurrency": 512}},
        "segments": [segment],
        "files": {
            f"raw/{path.name}": {
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in raw.iterdir()
        },
    }
    (folder / "meta.json").write_text(json.dumps(meta))


def _answer(rng: np.random.Generator, sent: int, most: int) -> tuple[list[int], list[int]]:
    """Return the token events of an answer: arrival, and cumulative tokens."""
    counts = 1 + np.cumsum(rng.integers(1, most + 1, TOKENS - 1))
    counts = np.concatenate(([1], counts[counts < TOKENS], [TOKENS]))
    gaps = rng.integers(GAP_NS // 2, GAP_NS * 3 // 2, counts.size)
    return (sent + FIRST_NS + np.cumsum(gaps)).tolist(), counts.tolist()


def _line(number: int, sent: int, times: list[int], counts: list[int]) -> str:
    record = {
        "id": f"main-main-{number:06d}",
        "segment": "main",
        "stream": "main",
        "warmup": False,
        "isl": 512,
        "osl": TOKENS,
        "scheduled_ns": sent,
        "connect_ns": sent,
        "sent_ns": sent,
        "last_ns": times[-1],
        "status": "ok",
        "error": None,
        "http_status": 200,
        "attempts": 1,
        "t_ns": [*times, times[-1], times[-1]],
        "kinds": "t" * len(times) + "ud",
        "tokens": [*counts, counts[-1], None],
        "usage": {
            "prompt_tokens": 512,
            "completion_tokens": TOKENS,
            "cached_tokens": 0,
            "reasoning_tokens": None,
        },
        "finish_reason": "length",
        "timings": None,
    }
    return json.dumps(record, separators=(",", ":")) + "\n"


def measure(folder: Path, requests: int = REQUESTS) -> dict[str, Any]:
    """Return wall and processor time, peak memory and size of each load; each turn a new process.

    Raises:
        RuntimeError: the figures are not those of the case.
    """
    figures: dict[str, Any] = {"load_average": [round(os.getloadavg()[0], 2)]}
    for name, most in LOADS.items():
        case = folder / name
        # The kernel counts a parent's memory before exec as the child's: this one stays small.
        writer = multiprocessing.Process(target=write_case, args=(case, most, requests))
        writer.start()
        writer.join()
        turns = [cost([sys.executable, "-c", DERIVE, str(case)], folder) for _ in range(TURNS)]
        metrics = json.loads((case / "metrics.json").read_text())
        (segment,) = metrics["segments"] or [{}]
        counted = (segment.get("metrics") or {}).get("itl_s") or {}
        if counted.get("n") != requests * (TOKENS - 1):
            raise RuntimeError(f"not derived: {metrics['reasons']}, {counted}")
        raw_bytes = (case / "attempts/001/raw/requests.jsonl").stat().st_size
        figures[name] = {"requests": requests, "itl_values": counted["n"], "raw_bytes": raw_bytes}
        figures[name]["turns"] = turns
        for path in case.glob("attempts/001/raw/*"):
            path.unlink()
        figures["load_average"].append(round(os.getloadavg()[0], 2))
    return figures


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the limits that the figures break, by the best turn of each load."""
    found = []
    for name in LOADS:
        wall, peak = (least(figures[name]["turns"], key) for key in ("wall_s", "peak_mb"))
        if wall > WALL_LIMIT_S:
            found.append(f"metrics, {name}: {wall} s, limit {WALL_LIMIT_S}")
        if peak > MEMORY_LIMIT_MB:
            found.append(f"metrics, {name}: {peak} MB, limit {MEMORY_LIMIT_MB}")
    return found
