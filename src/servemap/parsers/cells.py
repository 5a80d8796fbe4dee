"""Values in the cells of tables that are meant for people: numbers, units, and what is missing."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

import yaml

_MISSING = frozenset({
    *("", "-", "--", "n/a", "na", "nan", "-nan", "inf", "-inf", "none", "null", "unknown", "err!"),
    *("error", "unknown error", "not supported", "unsupported", "not available"),
    *("insufficient permissions", "gpu is lost", "requested functionality has been deprecated"),
})  # fmt: skip
# Twenty digits hold every 64-bit counter; longer ones are no measurement.
_MOST_DIGITS = 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?[0-9]{0,20}[.,][0-9]{1,30}(?:[eE][+-]?[0-9]{1,2})?")
_EXPONENT = re.compile(r"[+-]?[0-9]{1,20}\.?[eE][+-]?[0-9]{1,2}")
# A longer cell is neither a number nor a word for a missing one.
_LONGEST = 80
_MOST_REMEMBERED = 4096
_QUANTITY = re.compile(r"([+-]?[0-9][0-9.,eE+-]{0,60})[ \t]*([^0-9\s.,][^\s]{0,20})?")

Number = int | float
T = TypeVar("T")


class Quantity(NamedTuple):
    """A number with the unit that stood behind it, None where none did."""

    value: Number
    unit: str | None


def is_missing(cell: str) -> bool:
    """Return whether a cell says that there is no value: N/A, -, [Not Supported], <not counted>."""
    word = cell.strip()
    return not word or (len(word) <= _LONGEST and _is_missing(word))


@lru_cache(maxsize=65536)
def _is_missing(word: str) -> bool:
    return (
        word.casefold() in _MISSING
        or word[:4].casefold() in ("n/a ", "n/a(")
        or (word.startswith("[") and word.endswith("]"))
        or (word.startswith("<") and word.endswith(">"))
    )


def number(cell: str) -> Number | None:
    """Return the number in a cell, or None where it holds anything else.

    A comma is a decimal mark, as in the output of a localised tool; digits are never grouped
    here. Whole numbers without a mark are int.
    """
    word = cell.strip()
    if word.isdecimal() and word.isascii() and len(word) <= _MOST_DIGITS:
        return int(word)
    return _number(word) if len(word) <= _LONGEST else None


# Cells of telemetry repeat, and a look-up takes a tenth of a match.
@lru_cache(maxsize=65536)
def _number(word: str) -> Number | None:
    if _INTEGER.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word) or _EXPONENT.fullmatch(word):
        return float(word.replace(",", "."))
    return None


class _Remembered(dict[str, T]):
    """What cells were read as; a look-up takes a tenth of what `lru_cache` and a call take."""

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read

    def __missing__(self, cell: str) -> T:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        found = self[cell] = self._read(cell)
        return found


def remembered(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a function of a cell that looks up what it read lately; an error is not kept."""
    return _Remembered(read).__getitem__


def quantity(cell: str) -> Quantity | None:
    """Return a number and its unit (`66W`, `40 C`, `8 %`), or None where the cell holds none."""
    word = cell.strip()
    return _quantity(word) if len(word) <= _LONGEST else None


@lru_cache(maxsize=65536)
def _quantity(word: str) -> Quantity | None:
    match = _QUANTITY.fullmatch(word)
    value = number(match[1]) if match else None
    return None if match is None or value is None else Quantity(value, match[2])


def value(cell: str) -> Number | str | None:
    """Return a cell as a number, as text, or as None where the value is missing.

    Digits behind a leading zero (`0000`, `01`) are an identifier and stay text.
    """
    if is_missing(cell):
        return None
    word = cell.strip()
    found = None if word[:1] == "0" and word[1:2].isdigit() else number(word)
    return word if found is None else found


class Unit(NamedTuple):
    """How a unit is kept: the ending of the key, and the factor of the values."""

    suffix: str
    factor: Number


@cache
def _units() -> dict[str, Unit]:
    text = files("servemap.parsers").joinpath("units.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Number]] = yaml.safe_load(text)
    return {
        spelling: Unit(suffix, factor)
        for suffix, spellings in table.items()
        for spelling, factor in spellings.items()
    }


def unit(spelling: str | None) -> Unit | None:
    """Return how a unit is kept (`MiB`: `bytes`, times 1048576), or None for an unknown one."""
    return None if spelling is None else _units().get(spelling.strip())


def scaled(amount: Number | None, factor: Number) -> Number | None:
    """Return `amount` times `factor`; the binary noise of a decimal fraction is rounded away."""
    if amount is None or factor == 1:
        return amount
    product = amount * factor
    return float(f"{product:.15g}") if isinstance(product, float) else product


def key(name: str) -> str:
    """Return a heading as a key: lower case, with `_` for everything but letters and digits."""
    return re.sub(r"[^0-9a-z]+", "_", name.casefold()).strip("_")


@lru_cache(maxsize=4096)
def heading(name: str) -> tuple[str, Unit | None]:
    """Return key and unit of a heading that ends with a unit: `GPU use (%)`, `Voltage (mV)`."""
    head, bracket, rest = name.strip().rstrip(":").rpartition("(")
    kept = unit(rest.removesuffix(")")) if bracket and rest.endswith(")") else None
    return (f"{key(head)}_{kept.suffix}", kept) if kept else (key(name), None)


@lru_cache(maxsize=65536)
def headed(name: str, cell: str) -> tuple[str, Number | str | None]:
    """Return key and value of a cell whose unit stands in its heading, in itself, or in both.

    `GPU use (%)`: `99%` gives `gpu_use_percent`, 99.
    """
    named, kept = heading(name)
    found = quantity(cell.strip().removeprefix("(").removesuffix(")"))
    inside = unit(found.unit) if found else None
    if kept is None and found and inside:
        return f"{named}_{inside.suffix}", scaled(found.value, inside.factor)
    if kept is None:
        return named, value(cell)
    if found is None or (found.unit and (inside is None or inside.suffix != kept.suffix)):
        return named, None
    return named, scaled(found.value, (inside or kept).factor)
