"""The JSON file that nccl-tests writes with -J."""

import re
from collections import Counter
from typing import Any

from servemap.parsers.cells import scaled
from servemap.parsers.communication.nccl_tests_check import judged
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import amount, integer, items, mapping, string

_PROGRAM = re.compile(r"(\w+)_perf$")
# The values of a half and of its times per iteration, as jsonDouble of src/util.cu writes them.
_HALF = {
    "time": ("time_s", 1e-6),
    "cpu_time": ("cpu_time_s", 1e-6),
    "alg_bw": ("algbw_bytes_per_s", 1e9),
    "bus_bw": ("busbw_bytes_per_s", 1e9),
    "nwrong": ("wrong", 1),
}
_PER_ITERATION = {
    "min_us": ("iteration_min_s", 1e-6),
    "max_us": ("iteration_max_s", 1e-6),
    "p99_us": ("iteration_p99_s", 1e-6),
    "cv_pct": ("iteration_cv_percent", 1),
}


def read_json(text: str) -> Extract:
    """Return the same runs as the text form gives, from the file of one run.

    Raises:
        ParseError: it is no JSON, or no results are in it.
    """
    document = read_document("nccl-tests", text)
    top = mapping(document.value)
    if not isinstance(top.get("results"), list):
        raise foreign("nccl-tests", "list of results")
    rows = [_row(mapping(result)) for result in items(top["results"])]
    config = mapping(top.get("config"))
    devices = [_device(mapping(one)) for one in items(config.get("devices"))]
    ranks = Counter(device["rank"] for device in devices if device["rank"] is not None)
    whole = bool(ranks) and len(ranks) == max(ranks) + 1
    program = _PROGRAM.search(str(next(iter(items(top.get("args"))), "")))
    average = mapping(top.get("average_bus_bandwidth"))
    okay = {"true": "OK", "false": "FAILED"}.get(str(average.get("okay")))
    run = {
        "process": "",
        "collective": program[1] if program else None,
        "collective_from": "name" if program else None,
        "parameters": {key: value for key, value in config.items() if integer(value) is not None},
        "ranks": max(ranks) + 1 if ranks else None,
        "nodes": len({device["host"] for device in devices}) if whole else None,
        "duplicate_ranks": sorted(rank for rank, times in ranks.items() if times > 1),
        "devices": devices,
        "rows": [row for row in rows if row["size_bytes"] is not None and _has_rates(row)],
        "out_of_bounds": integer(mapping(top.get("out_of_bounds")).get("count")),
        "average_busbw_bytes_per_s": scaled(amount(average.get("bandwidth")), 1e9),
        "average_check": okay,
    }
    return Extract({"runs": [judged(run)], "failures": []}, document.skipped)


def _row(result: dict[str, Any]) -> dict[str, Any]:
    root = integer(result.get("root"))
    redop = string(result.get("redop"))
    return {
        "size_bytes": integer(result.get("size")),
        "count": integer(result.get("count")),
        "type": string(result.get("type")),
        "redop": None if redop == "none" else redop,
        "root": root if root is not None and root >= 0 else None,
        "out_of_place": _half(result, "out_of_place"),
        "in_place": _half(result, "in_place"),
    }


def _has_rates(row: dict[str, Any]) -> bool:
    """Whether a row was written to its rates; the last one of a cut file may not be."""
    halves = (row["out_of_place"] or {}, row["in_place"] or {})
    return any("busbw_bytes_per_s" in half for half in halves)


def _half(result: dict[str, Any], name: str) -> dict[str, Any] | None:
    half = result.get(name)
    if not isinstance(half, dict):
        return None
    found = {
        key: scaled(amount(half[source]), factor)
        for source, (key, factor) in _HALF.items()
        if source in half
    }
    times = mapping(result.get(f"{name}_per_iter"))
    for source, (key, factor) in _PER_ITERATION.items():
        if source in times:
            found[key] = scaled(amount(times[source]), factor)
    wrong = found.get("wrong")
    if isinstance(wrong, float) and wrong.is_integer():
        found["wrong"] = int(wrong)
    return found


def _device(device: dict[str, Any]) -> dict[str, Any]:
    return {
        "rank": integer(device.get("rank")),
        "group": integer(device.get("group")),
        "pid": integer(device.get("pid")),
        "host": string(device.get("hostname")),
        "device": integer(device.get("device")),
        "bus_id": string(device.get("device_hex")),
        "name": string(device.get("device_info")),
    }
