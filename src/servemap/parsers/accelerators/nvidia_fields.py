"""Fields of nvidia-smi: keys with units, whichever of its forms they come from."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from servemap.parsers.cells import (
    Number,
    is_missing,
    key,
    number,
    quantity,
    scaled,
    unit,
    value,
)


@cache
def _table() -> dict[str, Any]:
    file = files("servemap.parsers.accelerators").joinpath("nvidia.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@lru_cache(maxsize=4096)
def _is_text(name: str) -> bool:
    return re.search(_table()["text"], name) is not None


@lru_cache(maxsize=4096)
def declared(name: str, block: str = "") -> str | None:
    """Return the ending of a field's key that is known from its name or block, or None."""
    table = _table()
    for suffix, pattern in table["units"].items():
        if re.search(pattern, name):
            return str(suffix)
    for suffix, pattern in table["blocks"].items():
        if block and re.search(pattern, block):
            return str(suffix)
    return None


def field(name: str, cell: str, block: str = "") -> tuple[str, Number | str | None]:
    """Return key and value of a field whose unit, if any, stands in the cell: `67.03 W`.

    Args:
        name: as printed.
        cell: as printed; N/A and the like give None.
        block: key of the block that the field belongs to.
    """
    name = key(name)
    if _is_text(name):
        return name, None if is_missing(cell) else cell.strip()
    found = quantity(cell)
    kept = unit(found.unit) if found else None
    if found and kept:
        return f"{name}_{kept.suffix}", scaled(found.value, kept.factor)
    suffix = declared(name, block)
    if suffix is not None and (is_missing(cell) or number(cell) is not None):
        plain = unit(_table()["plain"][suffix])
        return f"{name}_{suffix}", scaled(number(cell), plain.factor if plain else 1)
    return name, value(cell)


class Column(NamedTuple):
    """One column: its key, the unit that its cells may end with, and how a cell becomes a value."""

    key: str
    spelling: str | None
    read: Callable[[str], Any]


def column(heading: str) -> Column:
    """Return a column of csv by its heading: `memory.used [MiB]`."""
    name, _, spelling = heading.strip().partition(" [")
    spelling = spelling.rstrip("]")
    if unit(spelling) is not None:
        return make_column(key(name), spelling)
    suffix = None if _is_text(key(name)) else declared(key(name))
    return make_column(key(name), None if suffix is None else str(_table()["plain"][suffix]))


def make_column(name: str, spelling: str | None) -> Column:
    """Return a column whose cells are in the unit `spelling`; None or an unknown one for none."""
    kept = unit(spelling)
    if kept is None or spelling is None:
        return Column(name, None, _text if _is_text(name) else value)
    factor = kept.factor

    def read(cell: str) -> Number | None:
        return scaled(number(cell.removesuffix(spelling)), factor)

    return Column(f"{name}_{kept.suffix}", spelling, read)


def _text(cell: str) -> str | None:
    return None if is_missing(cell) else cell


@cache
def _failures() -> re.Pattern[str]:
    return re.compile(_table()["failures"])


def says_failure(line: str) -> bool:
    """Return whether a line is nvidia-smi's own message that it has no values to give."""
    return _failures().match(line.strip()[:200]) is not None
