"""What the ranks and the checked values of a run of nccl-tests say, whatever its summary does."""

from typing import Any

# Largest error that passes, by type: DeltaMaxValue of src/common.cu before 2.13, which printed the
# error itself. Types that are not named must be exact.
_LARGEST_ERROR = {"half": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}
_HALVES = ("out_of_place", "in_place")


def judged(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with `distributed`, `wrong_at_bytes` and `summary_contradicted`."""
    wrong = {half: _wrong(run["rows"], half) for half in _HALVES}
    said = run["out_of_bounds"] == 0 or run["average_check"] == "OK"
    return {
        **run,
        "distributed": _distributed(run),
        "wrong_at_bytes": wrong,
        "summary_contradicted": any(wrong.values()) if said else None,
    }


def _distributed(run: dict[str, Any]) -> bool | None:
    """Return whether more than one rank took part; None where no rank is listed."""
    if run["ranks"] is None:
        return None
    return run["ranks"] > 1 and not run["duplicate_ranks"]


def _wrong(rows: list[dict[str, Any]], half: str) -> list[int] | None:
    """Return the sizes whose values were wrong; None where none was checked."""
    checked = [
        (row["size_bytes"], verdict)
        for row in rows
        if (verdict := _is_wrong(row[half] or {}, str(row["type"]))) is not None
    ]
    return [size for size, verdict in checked if verdict] if checked else None


def _is_wrong(values: dict[str, Any], kind: str) -> bool | None:
    if values.get("wrong") is not None:
        return bool(values["wrong"])
    error = values.get("max_error")
    return None if error is None else bool(error > _LARGEST_ERROR.get(kind, 0.0))
