"""Rows of tables/baselines.csv: one a figure of a communication baseline, failures included."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.analysis.communication.pairs import figures
from servemap.model.attempts import read_json
from servemap.parsers.values import mapping, number, sequence, text

COLUMNS = (
    "baseline",
    "kind",
    "status",
    "simulated",
    "reused_from",
    "tool",
    "launch",
    "backend",
    "nodes",
    "settings",
    "ranks",
    "operation",
    "size_bytes",
    "figure",
    "unit",
    "value",
    "reason",
)
Row = dict[str, Any]

_TCP = {"p50": "rtt_p50", "p95": "rtt_p95", "p99": "rtt_p99", "max": "rtt_max"}
_COLLECTIVE = {
    "algbw_bytes_per_s": ("algbw", "bytes_per_s"),
    "busbw_bytes_per_s": ("busbw", "bytes_per_s"),
    "wrong": ("wrong_values", "1"),
}


def read_baselines(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a run's baselines by name."""
    found = {path.stem: read_json(path) for path in sorted(run_dir.glob("baselines/*.json"))}
    return {name: record for name, record in found.items() if record is not None}


def baseline_rows(records: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return the rows of all records; what was not measured has one row with its reason."""
    rows = []
    for name, record in records.items():
        results = [mapping(item) for item in sequence(record.get("results"))]
        for result in results or [{}]:
            about = _about(name, record, result)
            found = _figures(result) if about["status"] == "ok" else []
            if not found:
                reasons = [str(one) for one in sequence(record.get("reasons"))]
                said = text(result.get("error")) or "; ".join(reasons)
                found = [{"reason": " ".join(said.split()) or None}]
            rows += [about | one for one in found]
    return rows


def _about(name: str, record: Mapping[str, Any], result: Mapping[str, Any]) -> Row:
    nodes = [result.get(side) for side in ("from", "to")] if "from" in result else None
    return dict.fromkeys(COLUMNS) | {
        "baseline": name,
        "kind": record.get("kind"),
        "status": result.get("status", record.get("status")),
        "simulated": bool(result.get("simulated", record.get("simulated"))),
        "reused_from": mapping(record.get("reused")).get("run"),
        "tool": result.get("tool"),
        "launch": result.get("launch"),
        "backend": result.get("backend"),
        "nodes": " ".join(map(str, nodes or sequence(result.get("nodes")))) or None,
        "settings": settings_text(result) or None,
        "ranks": result.get("world"),
    }


def settings_text(result: Mapping[str, Any]) -> str:
    """Return the values of the sweep that a part was measured with, as `NAME=VALUE`."""
    return " ".join(f"{key}={value}" for key, value in mapping(result.get("settings")).items())


def _figures(result: Mapping[str, Any]) -> list[Row]:
    """Return operation, size, figure, unit and value of all that a result measured."""
    found = [
        {"figure": figure, "unit": "us", "value": value}
        for point, figure in _TCP.items()
        if (value := number(mapping(result.get("rtt_us")).get(point))) is not None
    ]
    if (value := number(result.get("bandwidth_bytes_per_s"))) is not None:
        found.append({"figure": "bandwidth", "unit": "bytes_per_s", "value": value})
    rates = {
        (str(pair.get("row")), str(pair.get("column"))): rate
        for pair in map(mapping, sequence(result.get("pairs")))
        if (rate := number(pair.get("bandwidth_bytes_per_s"))) is not None
    }
    if spread := figures(rates):
        points = {"min": spread.least, "median": spread.median, "max": spread.most}
        found += [
            {"figure": f"copy_{point}", "unit": "bytes_per_s", "value": value}
            for point, value in points.items()
        ]
    for row in map(mapping, sequence(result.get("rows"))):
        of = {"operation": row.get("operation"), "size_bytes": row.get("size_bytes")}
        values = [
            (f"time_{point}", "s", number(value))
            for point, value in mapping(row.get("time_s")).items()
        ]
        values += [(*names, number(row.get(key))) for key, names in _COLLECTIVE.items()]
        found += [
            {**of, "figure": figure, "unit": unit, "value": value}
            for figure, unit, value in values
            if value is not None
        ]
    return found
