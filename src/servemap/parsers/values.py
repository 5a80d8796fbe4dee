"""Reading values out of decoded JSON that may hold anything."""

import math
from typing import Any


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else (booleans and huge integers included)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def integer(value: Any) -> int | None:
    """Return an integer that fits 64 bits, or None for anything else."""
    if type(value) is not int:
        return None
    return value if -(2**63) <= value < 2**63 else None


def moment(value: Any) -> int | None:
    """Return a time in ns that 64 bits hold with the difference to any other, or None."""
    found = integer(value)
    return found if found is not None and abs(found) < 2**61 else None


def mapping(value: Any) -> dict[str, Any]:
    """Return the object, or an empty one where there is none."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """Return the list, or an empty one where there is none."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """Return the string, or None for anything else."""
    return value if isinstance(value, str) else None
