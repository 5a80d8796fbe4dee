"""JSON documents of unknown shape: reading them, and the values in them."""

import json
import math
from typing import Any, NamedTuple

from servemap.model.errors import ParseError
from servemap.parsers.cells import Number, number


class Document(NamedTuple):
    """The first JSON document of a text, and the line (1-based) at which other text follows."""

    value: Any
    rest_line: int | None


def is_json(text: str) -> bool:
    """Whether a text begins as a JSON object or list does."""
    return text.lstrip()[:1] in ("{", "[")


def read_document(text: str, kind: str) -> Document:
    """Return the JSON document with which `text` begins; NaN and Infinity in it become None.

    Raises:
        ParseError: it is not JSON, or cut off.
    """
    start = len(text) - len(text.lstrip())
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    try:
        value, end = decoder.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        remedy = "record it again to its end; it was cut or something else was written into it"
        raise ParseError(f"the JSON cannot be read: {error}", kind, remedy) from error
    rest = text[end:].lstrip()
    line = text.count("\n", 0, len(text) - len(rest)) + 1 if rest else None
    return Document(value, line)


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
