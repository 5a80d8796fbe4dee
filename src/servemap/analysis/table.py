"""The short result table for a terminal: one line a repeat."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from servemap.model.attempts import read_json

HEADERS = [
    "variant", "case", "r", "segment", "result", "TTFT p50 ms", "TPOT p50 ms", "E2E p50 ms",
    "output tok/s", "input tok/s",
]  # fmt: skip
MISSING = "-"


def result_table(folder: Path, rows: Iterable[dict[str, Any]], last: int | None = None) -> str:
    """Return the table of a run's repeats; only the `last` measured ones where that is given.

    A figure that is missing or not valid is `-`, never 0.
    """
    found = []
    for row in rows:
        repeat = folder / "cases" / row["variant"] / row["case"] / f"r{row['repeat']}"
        meta = read_json(repeat / "meta.json")
        if meta is None:
            if last is None:
                found.append((0, [[*_key(row), MISSING, "not measured"]]))
            continue
        metrics = read_json(repeat / "metrics.json") or {}
        found.append((meta.get("ended_ns") or 0, _lines(row, meta, metrics)))
    if last is not None:
        found = sorted(found, key=lambda item: item[0])[-last:]
    lines = [line for _, group in found for line in group]
    return tabulate(lines, headers=HEADERS, tablefmt="simple", missingval=MISSING, floatfmt=".4g")


def _key(row: dict[str, Any]) -> list[Any]:
    return [row["variant"], row["case"], row["repeat"]]


def _lines(row: dict[str, Any], meta: dict[str, Any], metrics: dict[str, Any]) -> list[list[Any]]:
    if meta.get("status") != "ok":
        reasons = meta.get("reasons") or [""]
        return [[*_key(row), MISSING, f"{meta.get('status')}: {reasons[0].splitlines()[0][:60]}"]]
    current = metrics.get("attempt") == meta.get("attempt")
    verdict = metrics.get("verdict", "not derived") if current else "not derived"
    segments = metrics.get("segments") or []
    if verdict != "valid" or not segments:
        reasons = metrics.get("reasons") or [""]
        return [[*_key(row), MISSING, f"{verdict}: {reasons[0][:60]}"]]
    return [
        [
            *_key(row),
            segment["name"],
            verdict,
            _ms(segment["metrics"], "ttft_s"),
            _ms(segment["metrics"], "tpot_s"),
            _ms(segment["metrics"], "e2e_s"),
            segment["metrics"].get("agg_output_tps"),
            segment["metrics"].get("input_tok_s"),
        ]
        for segment in segments
    ]


def _ms(metrics: dict[str, Any], name: str) -> float | None:
    value = (metrics.get(name) or {}).get("p50")
    return None if value is None else 1000 * float(value)
