"""Overhead per case of a finished run, and where it goes.

overhead = (wall time of the call - windows - warm-ups - server starts) / measured repeats
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON mapping; empty where there is no such file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def spans(run_dir: Path, since: float) -> dict[str, float]:
    """Return what a call that started at `since` (epoch s) did for the measurement, in s.

    Keys: `windows` (all segments), `warm_ups`, `server_starts` (every boot until it was gated),
    and `repeats`, the number of repeats that were measured.
    """
    total = {"windows": 0.0, "warm_ups": 0.0, "server_starts": 0.0, "repeats": 0.0}
    for folder, meta in attempts(run_dir, since):
        total["windows"] += sum(
            (segment["end_ns"] - segment["start_ns"]) / 1e9 for segment in meta["segments"]
        )
        warm_up = read_json(folder / "raw" / "client.json").get("warmup")
        if warm_up:
            total["warm_ups"] += (warm_up["end_ns"] - warm_up["start_ns"]) / 1e9
        total["repeats"] += 1
    for path in run_dir.glob("server/*/boots/*/boot.json"):
        boot = read_json(path)
        if boot["started_ns"] / 1e9 >= since and boot.get("ready_ns"):
            total["server_starts"] += (boot["ready_ns"] - boot["started_ns"]) / 1e9
    return total


def attempts(run_dir: Path, since: float) -> list[tuple[Path, dict[str, Any]]]:
    """Return the attempts that were begun after `since` and measured something, oldest first."""
    found = [
        (path.parent, read_json(path)) for path in run_dir.glob("cases/*/*/r*/attempts/*/meta.json")
    ]
    measured = [
        (folder, meta)
        for folder, meta in found
        if meta.get("segments") and meta["started_ns"] / 1e9 >= since
    ]
    return sorted(measured, key=lambda item: item[1]["started_ns"])


def overhead_per_case(wall_s: float, total: dict[str, float]) -> float:
    """Return the overhead in s for each measured repeat."""
    spent = total["windows"] + total["warm_ups"] + total["server_starts"]
    return (wall_s - spent) / total["repeats"]


def where_it_goes(run_dir: Path, since: float, wall_s: float) -> dict[str, float]:
    """Return the overhead's parts in s, over the whole call.

    Inside a case: `ensure`, `collectors`, `client` (its start, its records, its end) and `record`
    (hashes, meta.json). Outside: each rule's jobs without the measured time in them, `between jobs`
    (Snakemake), `begin` (its start, the DAG, the lock) and `end`. They add up to the overhead
    where no two jobs ran side by side.
    """
    parts: Counter[str] = Counter()
    inside = 0.0
    for folder, meta in attempts(run_dir, since):
        client = read_json(folder / "raw" / "client.json")
        measured = sum(item["end_ns"] - item["start_ns"] for item in meta["segments"]) / 1e9
        warm_up = client.get("warmup")
        if warm_up:
            measured += (warm_up["end_ns"] - warm_up["start_ns"]) / 1e9
        overhead = meta.get("overhead") or {}
        whole = (meta["ended_ns"] - meta["started_ns"]) / 1e9
        named = {
            "case: ensure": overhead.get("ensure_s", 0.0),
            "case: collectors": overhead.get("collectors_start_s", 0.0)
            + overhead.get("collectors_stop_s", 0.0),
            "case: client": overhead.get("client_s", measured) - measured,
        }
        named["case: record"] = whole - measured - sum(named.values())
        parts.update(named)
        inside += whole
    starts = spans(run_dir, since)["server_starts"]
    jobs = job_intervals(run_dir.parents[1] / ".snakemake" / "metadata", since)
    for rule, first, last in jobs:
        parts[f"jobs: {rule}"] += last - first
    # what is left of the case jobs is the start and end of their scripts
    parts["jobs: case"] -= inside
    parts["jobs: launch"] -= starts
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    times = {
        name: [event["t_ns"] / 1e9 for event in events if event["event"] == name]
        for name in ("session_begin", "session_end")
    }
    begin, end = times["session_begin"][-1], times["session_end"][-1]
    parts["begin"] = begin - since
    parts["end"] = since + wall_s - end
    parts["between jobs"] = (end - begin) - covered([(first, last) for _, first, last in jobs])
    return dict(parts)


def job_intervals(metadata: Path, since: float) -> list[tuple[str, float, float]]:
    """Return rule, start and end (epoch s) of every job, from Snakemake's own records of them."""
    jobs: dict[tuple[str, ...], tuple[str, float, float]] = {}
    for path in metadata.rglob("*"):
        record = read_json(path) if path.is_file() else {}
        if (record.get("starttime") or 0) >= since:
            # one record an output: the log is what a job has once
            key = (record["rule"], *record["log"])
            first, last = record["starttime"], record["endtime"]
            if key in jobs:
                first, last = min(first, jobs[key][1]), max(last, jobs[key][2])
            jobs[key] = (record["rule"], first, last)
    return sorted(jobs.values(), key=lambda job: job[1])


def covered(intervals: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for first, last in sorted(intervals):
        total += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    return total
