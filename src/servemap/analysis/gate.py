"""The campaign's verdict for people and CI: which planned repeats are not valid, and why."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from servemap.analysis.baselines import read_baselines
from servemap.analysis.communication.spread import slower, spread_rows
from servemap.analysis.repeats import say_unrecorded
from servemap.analysis.verdict import resolve_limits
from servemap.model.attempts import intact, read_json, read_records
from servemap.model.errors import parts


def failures(folder: Path, rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return one line for every planned repeat that is not measured and valid.

    A case of which a failure is expected is in order when it failed.

    Args:
        folder: the run's folder.
        rows: planned repeats, each with `variant`, `case`, `repeat` and, where known, `expect` and
            `spec_sha256`, the configuration that they must have been measured under.
    """
    found = []
    for row in rows:
        name = f"{row['variant']}/{row['case']} r{row['repeat']}"
        repeat = folder / "cases" / row["variant"] / row["case"] / f"r{row['repeat']}"
        meta = read_json(repeat / "meta.json")
        if row.get("expect") == "failure" and (meta or {}).get("status") == "failed":
            continue
        problem = _other_spec(row, meta) or _problem(
            repeat, meta, read_json(repeat / "metrics.json")
        )
        if problem is not None:
            found.append(f"{name}: {problem}")
    return found


def said(problems: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the gate's lines, each with whether it makes the gate fail."""
    return [
        *(f"fails the gate: {line}" for line in problems),
        *(f"does not fail the gate: {line}" for line in others),
    ]


def baseline_failures(folder: Path, names: Iterable[str]) -> list[str]:
    """Return one line for every planned baseline that has no good record."""
    found = []
    for name in names:
        record = read_json(folder / "baselines" / f"{name}.json")
        if record is None:
            found.append(f"baseline {name}: not measured")
        elif record.get("status") != "ok":
            found.append(f"baseline {name}: {record.get('status')}: {_reasons(record)}")
    return found


def slower_places(folder: Path, limits: Mapping[str, float]) -> list[str]:
    """Return one line for each place of a run's baselines that is slower than the others.

    Args:
        folder: the run's folder.
        limits: of the campaign, over the defaults of limits.yaml.
    """
    return slower(spread_rows(read_baselines(folder), resolve_limits(limits)))


def _problem(
    repeat: Path, meta: dict[str, Any] | None, metrics: dict[str, Any] | None
) -> str | None:
    if meta is None:
        return say_unrecorded(repeat)
    if meta.get("status") != "ok":
        return f"{meta.get('status')}: {_reasons(meta)}"
    damage = _damage(repeat, meta)
    if damage is not None:
        return damage
    if metrics is None or metrics.get("attempt") != meta.get("attempt"):
        return "measured, but not derived yet"
    if metrics.get("verdict") != "valid":
        return f"invalid: {_reasons(metrics)}"
    return None


def _other_spec(row: dict[str, Any], meta: dict[str, Any] | None) -> str | None:
    wanted = row.get("spec_sha256")
    if wanted is None or meta is None or meta.get("spec_sha256") == wanted:
        return None
    return "measured under another configuration; it is measured again"


def _damage(repeat: Path, meta: dict[str, Any]) -> str | None:
    """Return what is wrong with the attempt that a repeat's meta.json speaks of."""
    records = {record.number: record for record in read_records(repeat / "attempts")}
    record = records.get(meta.get("attempt") or 0)
    if record is None or record.status == "damaged":
        return "its attempt is gone or cannot be read; it is measured again"
    if not intact(record):
        return "its raw files are not as they were recorded; it is measured again"
    return None


def _reasons(record: dict[str, Any]) -> str:
    reasons = record.get("reasons")
    said = [parts(str(reason)).line for reason in reasons] if isinstance(reasons, list) else []
    return "; ".join(said) or "no reason recorded"
