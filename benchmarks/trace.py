"""`servemap trace` against HolisticTraceAnalysis on the same traces: time and memory.

The traces are a recorded one of the corpus (`SERVEMAP_CORPUS`) repeated in time. `SERVEMAP_HTA` may
name an interpreter that has HolisticTraceAnalysis; without it only our own figures are measured.
"""

import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SOURCE = "kineto_full/v100_nccl_training.json.gz"
SIZES = {"one_200_mb": (1, 4), "one_1_gb": (1, 20), "eight_200_mb": (8, 4)}
TURNS = 3
RATIO_LIMIT = 20.0
SPEED_LIMIT = 150.0

# The questions that both answer: time by kind, kernels, overlap, idle time.
HTA = """
import json
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(
    trace_files={n: p for n, p in enumerate(sys.argv[1:])}, trace_dir="/",
    include_last_profiler_step=True,
)
times = found.get_temporal_breakdown(visualize=False)
json.dump(times.to_dict("records"), open("hta.json", "w"), default=float)
found.get_gpu_kernel_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
"""


def repeated(source: Path, times: int, rank: int, path: Path) -> None:
    """Write the trace so often, one after the other; ids of later ones are their own."""
    with gzip.open(source) as packed:
        document = json.load(packed)
    events = document["traceEvents"]
    starts = [one["ts"] for one in events if one.get("ph") == "X"]
    step = int(max(starts) - min(starts)) + 1_000_000
    info = {**document["distributedInfo"], "rank": rank, "world_size": 8}
    head = {**document, "distributedInfo": info}
    del head["traceEvents"]
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for turn in range(times):
            lines = []
            for one in events:
                later = {**one, "ts": one["ts"] + turn * step}
                if "id" in later:
                    later["id"] += turn << 24
                if "correlation" in later.get("args", {}):
                    number = later["args"]["correlation"] + (turn << 24)
                    later["args"] = {**later["args"], "correlation": number}
                lines.append(json.dumps(later))
            out.write((",\n" if turn else "") + ",\n".join(lines))
        out.write("\n]}\n")


def cost(argv: list[str], folder: Path) -> dict[str, float]:
    """Return wall and processor time in s, and the largest process's peak memory, MB of 10^6."""
    begun = time.monotonic()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(
            f"{argv[:4]} ended with {status}: {(folder / 'log').read_text()[-2000:]}"
        )
    return {
        "wall_s": round(time.monotonic() - begun, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
    }


def differences(folder: Path) -> list[str]:
    """Return where idle and compute time of a rank differ between both, by more than 1 us."""
    files = json.loads((folder / "analysis.json").read_text())["files"]
    theirs = json.loads((folder / "hta.json").read_text())
    found = []
    for file, other in zip(files, theirs, strict=True):
        ours = file["devices"][0]["figures"]
        for key, name in (("idle_ns", "idle_time(us)"), ("compute_ns", "compute_time(us)")):
            if abs(ours[key] / 1000 - other[name]) > 1:
                found.append(f"rank {other['rank']}: {key} {ours[key]}, theirs {other[name]} us")
    return found


def can_measure() -> bool:
    """Whether the recorded trace is here."""
    return (Path(os.environ.get("SERVEMAP_CORPUS", "")) / SOURCE).is_file()


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures of each size; both programs in turns on the same files."""
    source = Path(os.environ["SERVEMAP_CORPUS"]) / SOURCE
    hta = os.environ.get("SERVEMAP_HTA")
    figures: dict[str, Any] = {"load_average": [round(os.getloadavg()[0], 2)]}
    for name, (ranks, times) in SIZES.items():
        paths = [folder / f"{name}-{rank}.json" for rank in range(ranks)]
        for rank, path in enumerate(paths):
            # The kernel counts a parent's memory before exec as the child's: this one stays small.
            writer = multiprocessing.Process(target=repeated, args=(source, times, rank, path))
            writer.start()
            writer.join()
        ours = [sys.executable, "-m", "servemap", "trace", *map(str, paths)]
        turns: dict[str, list[dict[str, float]]] = {"servemap": [], "hta": []}
        for turn in range(TURNS):
            turns["servemap"].append(cost(ours, folder))
            # One turn of the other is enough at the sizes at which it takes minutes.
            if hta and (turn == 0 or name == "one_200_mb"):
                turns["hta"].append(cost([hta, "-c", HTA, *map(str, paths)], folder))
        size = sum(path.stat().st_size for path in paths)
        figures[name] = {"bytes": size, **{key: one for key, one in turns.items() if one}}
        figures[name]["mb_per_cpu_s"] = round(size / 1e6 / least(turns["servemap"], "cpu_s"), 1)
        if turns["hta"]:
            figures[name]["differences"] = differences(folder)
            for key in ("wall_s", "cpu_s", "peak_mb"):
                ratio = least(turns["hta"], key) / least(turns["servemap"], key)
                figures[name][f"ratio_{key}"] = round(ratio, 1)
        for path in paths:
            path.unlink()
        figures["load_average"].append(round(os.getloadavg()[0], 2))
    return figures


def least(turns: list[dict[str, float]], key: str) -> float:
    """Return the smallest of a figure; others on the machine only ever add to it."""
    return min(one[key] for one in turns)


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the limits that the figures break."""
    failures = []
    for name in SIZES:
        failures += [f"trace, {name}: {one}" for one in figures[name].get("differences", [])]
        if (speed := figures[name]["mb_per_cpu_s"]) < SPEED_LIMIT:
            failures.append(f"trace, {name}: {speed} MB a processor second, limit {SPEED_LIMIT}")
        for key in ("ratio_wall_s", "ratio_peak_mb"):
            ratio = figures[name].get(key)
            if ratio is not None and ratio < RATIO_LIMIT:
                failures.append(f"trace, {name}: {key} {ratio}, limit {RATIO_LIMIT}")
    return failures
