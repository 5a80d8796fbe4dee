"""The campaign's verdict for people and CI: which planned repeats are not valid, and why."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from servemap.analysis.repeats import say_unrecorded
from servemap.model.attempts import read_json


def failures(folder: Path, rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return one line for every planned repeat that is not measured and valid.

    A case of which a failure is expected is in order when it failed.

    Args:
        folder: the run's folder.
        rows: planned repeats, each with `variant`, `case`, `repeat` and, where known, `expect`.
    """
    found = []
    for row in rows:
        name = f"{row['variant']}/{row['case']} r{row['repeat']}"
        repeat = folder / "cases" / row["variant"] / row["case"] / f"r{row['repeat']}"
        meta = read_json(repeat / "meta.json")
        if row.get("expect") == "failure" and (meta or {}).get("status") == "failed":
            continue
        problem = _problem(repeat, meta, read_json(repeat / "metrics.json"))
        if problem is not None:
            found.append(f"{name}: {problem}")
    return found


def _problem(
    repeat: Path, meta: dict[str, Any] | None, metrics: dict[str, Any] | None
) -> str | None:
    if meta is None:
        return say_unrecorded(repeat)
    if meta.get("status") != "ok":
        return f"{meta.get('status')}: {_reasons(meta)}"
    if metrics is None or metrics.get("attempt") != meta.get("attempt"):
        return "measured, but not derived yet"
    if metrics.get("verdict") != "valid":
        return f"invalid: {_reasons(metrics)}"
    return None


def _reasons(record: dict[str, Any]) -> str:
    reasons = record.get("reasons")
    said = [str(reason) for reason in reasons] if isinstance(reasons, list) else []
    return "; ".join(said) or "no reason recorded"
