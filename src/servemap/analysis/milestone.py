"""Whether the repeats of a milestone phase agree: enough of them valid, and their CV small."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.analysis.gate import failures
from servemap.analysis.repeats import SCHEMA, read_repeat
from servemap.analysis.summary import aggregate, summary_row
from servemap.model.canon import write_json_atomic

Row = dict[str, Any]


def write_milestones(run_dir: Path, milestones: Iterable[Mapping[str, Any]]) -> list[str]:
    """Judge milestones, write milestones/PHASE.json of each, and return what was missed in words.

    Args:
        run_dir: results/RUN.
        milestones: what they ask for (see `Plan.milestones`).
    """
    missed = []
    for asked in milestones:
        record = judge(run_dir, asked)
        write_json_atomic(run_dir / "milestones" / f"{asked['phase']}.json", record)
        missed += [f"milestone {asked['phase']}: {text}" for text in record["missed"]]
    return missed


def judge(run_dir: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a milestone: its rule, `passed`, `missed` in words, and its cases.

    A case that is expected to fail has no repeats to agree and is left out once it failed.
    """
    cases: list[Row] = []
    for variant, case in dict.fromkeys((row["variant"], row["case"]) for row in asked["rows"]):
        rows = [row for row in asked["rows"] if (row["variant"], row["case"]) == (variant, case)]
        bad = failures(run_dir, rows)
        if bad or not _failed_as_expected(run_dir, rows):
            cases.append(_case(run_dir, asked, rows, bad))
    missed = [
        f"{case['variant']}/{case['case']}: {text}" for case in cases for text in case["missed"]
    ]
    return {
        "schema": SCHEMA,
        **{key: asked[key] for key in ("phase", "repeats", "cv", "metric")},
        "passed": not missed,
        "missed": missed,
        "cases": cases,
    }


def _failed_as_expected(run_dir: Path, rows: Sequence[Row]) -> bool:
    return any(
        row.get("expect") == "failure" and read_repeat(run_dir, row).status == "failed"
        for row in rows
    )


def _case(run_dir: Path, asked: Mapping[str, Any], rows: Sequence[Row], bad: list[str]) -> Row:
    """Return how a case's valid repeats agree, those of planned and of fall-back lengths apart."""
    broken = {text.partition(":")[0] for text in bad}
    summaries = []
    for row in rows:
        line = summary_row(run_dir.name, read_repeat(run_dir, row))
        if f"{row['variant']}/{row['case']} r{row['repeat']}" in broken:
            line["verdict"] = "invalid"
        summaries.append(line)
    # Lengths are never mixed; the group with the most valid repeats is the one that may pass.
    best = max(aggregate(summaries), key=lambda group: group[f"{asked['metric']}_n"])
    n, cv = best[f"{asked['metric']}_n"], best[f"{asked['metric']}_cv"]
    missed = []
    if n < asked["repeats"]:
        reasons = f" ({'; '.join(bad)})" if bad else ""
        missed.append(f"{n} of {asked['repeats']} valid repeats{reasons}")
    if n > 1 and cv is None:
        missed.append(f"the CV of {asked['metric']} is not defined: its mean is 0")
    elif cv is not None and cv > asked["cv"]:
        missed.append(
            f"CV of {asked['metric']} {cv * 100:.2f} %, limit {asked['cv'] * 100:g} %: "
            f"{(cv - asked['cv']) * 100:.2f} points over"
        )
    return {
        "variant": rows[0]["variant"],
        "case": rows[0]["case"],
        "lengths": best["lengths"],
        "planned": len(rows),
        "n": n,
        "starts": best["starts"],
        "mean": best[f"{asked['metric']}_mean"],
        "cv": cv,
        "missed": missed,
    }
