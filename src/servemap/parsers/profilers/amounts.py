"""Numbers and units as Nsight's tools print them: grouped digits, units in headings or beside."""

import re
from typing import NamedTuple

from servemap.parsers.cells import Number, key, number, scaled, unit

NANOSECONDS = {
    "ns": 1, "nsecond": 1, "nanosecond": 1, "us": 1_000, "usecond": 1_000, "μs": 1_000,
    "µs": 1_000, "microsecond": 1_000, "ms": 1_000_000, "msecond": 1_000_000,
    "millisecond": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000, "second": 1_000_000_000,
    "min": 60_000_000_000, "hour": 3_600_000_000_000,
}  # fmt: skip
# Longer ones are no measurement.
_LONGEST = 60
_MARKS = re.compile(r"[.,\u00a0\u202f' ]")
_PLAIN = re.compile(r"[+-]?[0-9]+([.,])([0-9]+)")
_OTHER = {".": ",", ",": "."}
_GROUPED = {
    mark: re.compile(rf"([+-]?)([0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+)(?:([.,])([0-9]+))?")
    for mark in (",", ".", "\u00a0", "\u202f", "'", " ")
}


class Amount(NamedTuple):
    """How a unit is kept: the ending of the key, and the factor of the values."""

    suffix: str
    factor: Number


def amount_of(spelling: str) -> Amount | None:
    """Return how a unit is kept: times in ns, sizes in bytes, shares in percent."""
    if spelling in NANOSECONDS:
        return Amount("ns", NANOSECONDS[spelling])
    known = unit(spelling)
    return Amount(*known) if known is not None else None


def heading_of(text: str) -> tuple[str, Amount | None]:
    """Return key and unit of a heading such as `Total Time (ns)`, `Time(%)` or `Avg (MB)`."""
    head, bracket, rest = text.strip().rpartition("(")
    kept = amount_of(rest.removesuffix(")")) if bracket and rest.endswith(")") else None
    return (f"{key(head)}_{kept.suffix}", kept) if kept else (key(text), None)


def grouping_mark(words: list[str]) -> str | None:
    """Return what groups the digits of a text's numbers, None where nothing shows it.

    `1.215.000` and `1.215,50` show that the point groups, `65,77` too: the comma is no group there.
    `1,215` alone shows nothing, and where words disagree nothing is sure.
    """
    found = {mark for word in words if len(word) <= _LONGEST and (mark := _shown(word))}
    return found.pop() if len(found) == 1 else None


def _shown(word: str) -> str | None:
    marks = _MARKS.findall(word)
    if not marks:
        return None
    if len(marks) == 1:
        decimal = _PLAIN.fullmatch(word)
        return None if decimal is None or len(decimal[2]) == 3 else _OTHER[decimal[1]]
    grouped = _GROUPED[marks[0]].fullmatch(word)
    return str(marks[0]) if grouped and grouped[3] != marks[0] else None


def printed_number(word: str, mark: str = ",") -> Number | None:
    """Return the number in a cell whose digits are grouped by `mark`, None for anything else."""
    word = word.strip()
    if len(word) > _LONGEST:
        return None
    grouped = _GROUPED[mark].fullmatch(word)
    if grouped and grouped[3] != mark:
        whole = grouped[1] + grouped[2].replace(mark, "")
        return float(f"{whole}.{grouped[4]}") if grouped[3] else int(whole)
    return None if mark in word and mark in ",." else number(word)


def kept_number(word: str, kept: Amount | None, mark: str = ",") -> Number | None:
    """Return the number in a cell in the unit that is kept; whole ones are int."""
    found = scaled(printed_number(word, mark), kept.factor if kept else 1)
    return int(found) if isinstance(found, float) and found.is_integer() else found
