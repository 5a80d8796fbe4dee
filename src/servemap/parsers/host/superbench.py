"""The monitor of SuperBench: JSON lines whose keys end in the number of a GPU."""

import re
from typing import Any

from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import number

_GPU_KEY = re.compile(r"gpu_([a-z0-9_]+):([0-9]{1,4})")
_NET_KEY = re.compile(r"(.{1,64})_(receive|transmit)_bw")
# superbench/monitor/record.py and monitor.py: percent, bytes and MiB/s.
_GPU_UNITS = {
    "usage": "percent", "temperature": "celsius", "power": "watts", "power_limit": "watts",
    "mem_used": "bytes", "mem_total": "bytes",
}  # fmt: skip
_MIB = 1048576


def parse_superbench_monitor(text: str) -> Extract:
    """Samples of SuperBench's monitor, one JSON object a line.

    `samples`: `time` (local time as printed), `cpu_usage_percent` (of one core, summed), `gpus`
    {number: {`usage_percent`, `temperature_celsius`, `power_limit_watts`, `mem_used_bytes`,
    `mem_total_bytes`, ...}}, `interfaces` {name: {`receive_bytes_per_s`, `transmit_bytes_per_s`}}
    and `other` (keys that are none of these, as they are).

    Raises:
        ParseError: there is no line with a time.
    """
    lines, skipped = parse_jsonl(text.encode())
    samples = [_sample(line.value) for line in lines if "time" in line.value]
    if not samples:
        raise foreign("SuperBench's monitor", "JSON line with a time")
    return Extract({"samples": samples}, skipped)


def _sample(record: dict[str, Any]) -> dict[str, Any]:
    gpus: dict[str, dict[str, Any]] = {}
    interfaces: dict[str, dict[str, Any]] = {}
    other: dict[str, Any] = {}
    for name, item in record.items():
        if gpu := _GPU_KEY.fullmatch(name):
            suffix = _GPU_UNITS.get(gpu[1])
            gpus.setdefault(gpu[2], {})[f"{gpu[1]}_{suffix}" if suffix else gpu[1]] = item
        elif net := _NET_KEY.fullmatch(name):
            rate = number(item)
            interfaces.setdefault(net[1], {})[f"{net[2]}_bytes_per_s"] = (
                None if rate is None else number(rate * _MIB)
            )
        elif name not in ("time", "cpu_usage"):
            other[name] = item
    return {
        "time": record["time"],
        "cpu_usage_percent": number(record.get("cpu_usage")),
        "gpus": gpus,
        "interfaces": interfaces,
        "other": other,
    }
