"""How fast each parser of a line format reads: MB of its input per second of processor time.

The inputs are recorded ones of the corpus (`SERVEMAP_CORPUS`), repeated: lines as tools print them,
and raw telemetry as the agent keeps it.
"""

import json
import os
import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.kinds import parse

SIZE = 20_000_000
TURNS = 3
LIMIT_MB_S = 50.0
SAMPLES = {
    "nvidia-smi-csv": "nvidia_smi/001_h200_query_all_fields_load.csv",
    "nvidia-smi-dmon": "nvidia_smi/041_dmon_multi_gpu_fb.txt",
    "dcgmi-dmon": "dcgm/011_dmon_units_row_mixed_NA.txt",
    "mpstat": "sysstat/007_mpstat_expected_base.txt",
    "pidstat": "sysstat/011_pidstat_Hh.txt",
    "sar": "sysstat/016_sar_u.txt",
    "iostat": "sysstat/022_iostat_x_12h.txt",
    "perf-stat": "sysstat/024_perf_stat_csv_not_supported_comma_event.csv",
    "prometheus": "own/vllm_metrics_busy.txt",
    "engine-metrics": "own/vllm_metrics_busy.txt",
    "nccl-log": "nccl_logs/004_socket_fallback_2.27_4rank.log",
    "nccl-tests": "nccl_tests/007_dgxc_allreduce_h100_mpi_new.txt",
    "ethtool-statistics": "hca/011_ethtool_S_prio3_pause.txt",
    "rdma-statistic": "hca/007_rdma_statistic_two_links.txt",
    "hca-counters": "hca/001_sysfs_h100_grep_H.txt",
}
"""The sample that stands for each kind."""


ONCE = {"nvidia-smi-csv": 1}
"""How many lines of a sample a tool prints once only; all else comes again."""
EXPLAINED = frozenset(SAMPLES) - {"nvidia-smi-csv"}
"""Kinds whose profile in README.md says why they are slower than the limit."""
VARIANTS = 1000
_NUMBER = re.compile(rb"(?<![\w.:/-])(?:[0-9]+\.[0-9]+|[1-9][0-9]{2,})(?![\w.:/-])")


def can_measure() -> bool:
    """Tell whether the recorded samples are here."""
    return all((_corpus() / name).is_file() for name in SAMPLES.values())


def _corpus() -> Path:
    return Path(os.environ.get("SERVEMAP_CORPUS", ""))


def measure(_folder: Path) -> dict[str, Any]:
    """Return the speed of each kind, and that of raw JSON lines."""
    figures: dict[str, Any] = {"load_average": [round(os.getloadavg()[0], 2)]}
    speeds = {kind: _mb_s(_input(kind), partial(parse, kind)) for kind in SAMPLES}
    record = {"t_ns": 1_790_000_000_000_000_000, "mono_ns": 7_000_000_000, "line": "0, 100 %" * 20}
    speeds["jsonl"] = _mb_s(_repeated(json.dumps(record).encode() + b"\n"), parse_jsonl)
    figures["mb_per_cpu_s"] = speeds
    figures["load_average"].append(round(os.getloadavg()[0], 2))
    return figures


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the kinds that are slower than the limit without a reason in README.md."""
    return [
        f"parsers, {kind}: {speed} MB a processor second, limit {LIMIT_MB_S}"
        for kind, speed in figures["mb_per_cpu_s"].items()
        if speed < LIMIT_MB_S and kind not in EXPLAINED
    ]


def _input(kind: str) -> bytes:
    lines = (_corpus() / SAMPLES[kind]).read_bytes().splitlines(keepends=True)
    if not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    if kind == "ethtool-statistics":
        lines.insert(0, b"NIC statistics:\n")  # The recorded part is from below it.
    once = ONCE.get(kind, 0)
    raw = b"".join(lines[:once]) + _repeated(b"".join(lines[once:]))
    skipped = len(parse(kind, raw).skipped)
    if skipped > raw.count(b"\n") / 10:
        raise RuntimeError(f"{kind}: {skipped} lines were skipped, so nothing is measured")
    return raw


def _repeated(sample: bytes) -> bytes:
    """Return a sample again and again, its counts and fractions drawn anew."""
    draw = random.Random(1)

    def smaller(found: re.Match[bytes]) -> bytes:
        _, point, fraction = found[0].partition(b".")
        value = float(found[0]) * draw.uniform(0.5, 1)
        return b"%.*f" % (len(fraction), value) if point else b"%d" % value

    times = max(SIZE // len(sample), 1)
    turns = [_NUMBER.sub(smaller, sample) for _ in range(min(times, VARIANTS))]
    return b"".join(turns[turn % len(turns)] for turn in range(times))


def _mb_s(raw: bytes, read: Callable[[bytes], Any]) -> float:
    """Return MB of 10^6 bytes per second of processor time, the best turn."""
    spent = []
    for _ in range(TURNS):
        begun = time.process_time()
        read(raw)
        spent.append(time.process_time() - begun)
    return round(len(raw) / 1e6 / min(spent), 1)
