"""Values in JSON documents of unknown shape."""

import json
import math
import re
from typing import Any

from servemap.model.files import finite
from servemap.parsers.cells import Number, number

# As `parse_json` reads, and integers far beyond 64 bits are None: they are no measurement.
DECODER = json.JSONDecoder(
    parse_float=finite,
    parse_int=lambda digits: int(digits) if len(digits) <= 21 else None,
    parse_constant=lambda _: None,
)
_START = re.compile(r"\s*(?:\{|\[\s*[\[{])")


def is_json(text: str) -> bool:
    """Whether a text begins as a JSON object, or a list of objects or lists, does."""
    return _START.match(text) is not None


def mapping(value: Any) -> dict[str, Any]:
    """Return a value that should be an object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a value that should be a list; an empty one where it is none."""
    return value if isinstance(value, list) else []


def amount(value: Any) -> Number | None:
    """Return a number that may be written as a string, or None."""
    if isinstance(value, str):
        return number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def integer(value: Any) -> int | None:
    """Return a whole number that may be written as a string, or None."""
    found = amount(value)
    return found if isinstance(found, int) else None


def string(value: Any) -> str | None:
    """Return a value that should be a string that is not empty, or None."""
    return value if isinstance(value, str) and value else None
