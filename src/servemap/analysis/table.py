"""The short result table for a terminal: one line a repeat."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from servemap.analysis.repeats import say_unrecorded
from servemap.model.attempts import read_json
from servemap.model.order import CaseKey
from servemap.model.search import say_level
from servemap.parsers.values import integer, mapping, number, sequence

HEADERS = [
    "variant", "case", "r", "segment", "result", "TTFT p50 ms", "TPOT p50 ms", "E2E p50 ms",
    "output tok/s", "input tok/s",
]  # fmt: skip
MISSING = "-"


def result_table(
    folder: Path,
    rows: Iterable[dict[str, Any]],
    outdated: Mapping[CaseKey, str] | None = None,
    last: int | None = None,
) -> str:
    """Return the table of a run's repeats; a figure that is missing or not valid is `-`, never 0.

    `marked` is said of what was measured although the environment was not as it should be.

    Args:
        folder: the run's folder.
        rows: planned repeats, each with `variant`, `case` and `repeat`.
        outdated: why the figures of some repeats no longer count.
        last: how many of those measured last are shown; all repeats if None.
    """
    found = []
    for row in rows:
        repeat = folder / "cases" / row["variant"] / row["case"] / f"r{row['repeat']}"
        meta = read_json(repeat / "meta.json")
        if meta is None:
            if last is None:
                found.append((0, [[*_key(row), MISSING, say_unrecorded(repeat)]]))
            continue
        metrics = read_json(repeat / "metrics.json") or {}
        old = (outdated or {}).get((row["variant"], row["case"], row["repeat"]))
        lines = _lines(row, meta, metrics) if old is None else [[*_key(row), MISSING, old]]
        found.append((integer(meta.get("ended_ns")) or 0, lines))
    if last is not None:
        found = sorted(found, key=lambda item: item[0])[-last:]
    lines = [line for _, group in found for line in group]
    return tabulate(lines, headers=HEADERS, tablefmt="simple", missingval=MISSING, floatfmt=".4g")


def _key(row: dict[str, Any]) -> list[Any]:
    return [row["variant"], row["case"], row["repeat"]]


def _lines(row: dict[str, Any], meta: dict[str, Any], metrics: dict[str, Any]) -> list[list[Any]]:
    if meta.get("status") != "ok":
        return [[*_key(row), MISSING, f"{meta.get('status')}: {_first_reason(meta)}"]]
    if metrics.get("attempt") != meta.get("attempt") or "verdict" not in metrics:
        return [[*_key(row), MISSING, "not derived yet: run `snakemake`"]]
    verdict = metrics["verdict"]
    segments = [item for item in map(mapping, sequence(metrics.get("segments"))) if item]
    if verdict != "valid" or not segments:
        return [[*_key(row), MISSING, f"{verdict}: {_first_reason(metrics)}"]]
    search = mapping(metrics.get("search"))
    if search:
        segments = _answered(search, segments)
        if not segments:
            return [[*_key(row), MISSING, f"{verdict}: {say_answer(search)}"]]
        verdict = f"{verdict}, {say_answer(search)}"
    return [
        [
            *_key(row),
            name,
            f"{verdict}, marked" if mapping(meta.get("server")).get("drift") else verdict,
            _ms(figures, "ttft_s"),
            _ms(figures, "tpot_s"),
            _ms(figures, "e2e_s"),
            number(figures.get("agg_output_tps")),
            number(figures.get("input_tok_s")),
        ]
        for name, figures in ((s.get("name"), mapping(s.get("metrics"))) for s in segments)
    ]


def _answered(search: dict[str, Any], segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    probe = mapping(search.get("within_slo")).get("probe")
    return [segment for segment in segments if segment.get("name") == probe]


def say_answer(search: Mapping[str, Any]) -> str:
    """Return `concurrency 24 within SLO`, with `at least` where it is a lower bound."""
    level = number(mapping(search.get("within_slo")).get("level"))
    if level is None:
        known = search.get("ended") == "none"
        return "no level meets the SLO" if known else "no level is known to meet the SLO"
    least = "at least " if search.get("lower_bound") else ""
    return f"{least}{say_level(str(search.get('over')), level)} within SLO"


def _first_reason(record: dict[str, Any]) -> str:
    reasons = record.get("reasons")
    text = str(reasons[0]) if isinstance(reasons, list) and reasons else ""
    return (text.splitlines() or ["no reason recorded"])[0][:60]


def _ms(metrics: dict[str, Any], name: str) -> float | None:
    value = number(mapping(metrics.get(name)).get("p50"))
    return None if value is None else 1000 * value
