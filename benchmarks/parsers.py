"""How fast each parser of a line format reads: MB of its input per second of processor time.

The inputs are recorded ones of the corpus (`SERVEMAP_CORPUS`), repeated: lines as tools print them,
and raw telemetry as the agent keeps it.
"""

import json
import os
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


def can_measure() -> bool:
    """Tell whether the recorded samples are here."""
    return all((_corpus() / name).is_file() for name in SAMPLES.values())


def _corpus() -> Path:
    return Path(os.environ.get("SERVEMAP_CORPUS", ""))


def measure(_folder: Path) -> dict[str, Any]:
    """Return the speed of each kind, and that of raw JSON lines."""
    figures: dict[str, Any] = {"load_average": [round(os.getloadavg()[0], 2)]}
    speeds = {kind: _speed(kind, (_corpus() / name).read_bytes()) for kind, name in SAMPLES.items()}
    record = {"t_ns": 1_790_000_000_000_000_000, "mono_ns": 7_000_000_000, "line": "0, 100 %" * 20}
    speeds["jsonl"] = _mb_s(_times(json.dumps(record).encode() + b"\n"), parse_jsonl)
    figures["mb_per_cpu_s"] = speeds
    figures["load_average"].append(round(os.getloadavg()[0], 2))
    return figures


def _speed(kind: str, sample: bytes) -> float:
    whole = sample if sample.endswith(b"\n") else sample + b"\n"
    return _mb_s(_times(whole), partial(parse, kind))


def _times(sample: bytes) -> bytes:
    return sample * max(SIZE // len(sample), 1)


def _mb_s(raw: bytes, read: Callable[[bytes], Any]) -> float:
    """Return MB of 10^6 bytes per second of processor time, the best turn."""
    spent = []
    for _ in range(TURNS):
        begun = time.process_time()
        read(raw)
        spent.append(time.process_time() - begun)
    return round(len(raw) / 1e6 / min(spent), 1)
