"""Reading what Python programs print of their own configuration: never raises, whatever comes."""

import ast
import math
import re
from collections.abc import Iterator
from typing import Any

GIB = 1024**3

_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\[[0-9;]+m")
_ITEM = re.compile(r"'(\w+)': ('[^']*'|[^,{}\[\]()<']+)(?=[,}])")
_LONGEST = 200_000
_WORDS = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}


def plain_lines(log_text: str) -> Iterator[str]:
    """Return the lines of a log without colours; what follows a carriage return is a line."""
    for line in re.split(r"\r?\n|\r", log_text):
        yield without_colours(line)


def without_colours(line: str) -> str:
    """Return a line without colour codes, also those whose escape character was lost."""
    return _COLOUR.sub("", line)


def named_value(text: str, name: str) -> Any:
    """Return the first `NAME=VALUE` of a printed object; None where there is none.

    Quotes are taken off; numbers, booleans and None are such.
    """
    found = re.search(rf"(?<![\w.]){re.escape(name)}=('[^']*'|\"[^\"]*\"|[^,\s()\[\]{{}}]+)", text)
    return None if found is None else typed(found[1])


def typed(word: str) -> Any:
    """Return a printed value as what it is: number, boolean, None or text."""
    if word in _WORDS:
        return _WORDS[word]
    if word[:1] in "'\"":
        return word[1:-1]
    for kind in (int, float):
        try:
            return sound(kind(word), word)
        except ValueError:
            continue
    return word


def sound(value: Any, otherwise: Any = None) -> Any:
    """Return a value as JSON can hold it; in place of what it cannot, `otherwise`.

    Python prints, and JSON of others may hold, numbers that are none (`nan`, `1e999`), bytes, sets.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else otherwise
    if isinstance(value, dict):
        return {str(key): sound(item, otherwise) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sound(item, otherwise) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else otherwise


def printed_dict(text: str) -> dict[str, Any]:
    """Return a printed dictionary; of one that holds objects or is cut, the plain values.

    Of several values under one name the first counts.
    """
    text = text[:_LONGEST]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = {}
        for name, word in _ITEM.findall(text):
            value.setdefault(name, typed(word.strip()))
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def whole(digits: str) -> int | None:
    """Return a number that may have commas between its digits; None for anything else."""
    plain = digits.replace(",", "")
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 20 else None


def sized(number: str, unit: int) -> int | None:
    """Return a printed decimal number of a unit in bytes; None for anything else."""
    try:
        return round(float(number) * unit)
    except (ValueError, OverflowError):
        return None


def by_number(name: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts names as people count: TP2 before TP10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
