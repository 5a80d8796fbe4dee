"""Columns of sysstat's tools: keys with units, and what the tables are called."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from servemap.parsers.cells import Number, is_missing, key, number, remembered, scaled


@cache
def table() -> dict[str, Any]:
    """Return sysstat.yaml."""
    file = files("servemap.parsers.host").joinpath("sysstat.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


_KILOBYTES = re.compile(r"kb([a-z]+)")


class Column(NamedTuple):
    """One column: its key, and how a cell becomes a value."""

    key: str
    read: Callable[[str], Any]


def _text(cell: str) -> str | None:
    return None if is_missing(cell) else cell


# --human writes sizes so, and percentages with their sign (cprintf_unit of sysstat's common.c).
_HUMAN = {"B": 1, "s": 512, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def _bytes(cell: str, factor: int) -> Number | None:
    """Return the bytes of a cell, which is in units of `factor` bytes unless it names its own."""
    own = _HUMAN.get(cell[-1:])
    return scaled(number(cell), factor) if own is None else scaled(number(cell[:-1]), own)


def _percent(cell: str) -> Number | None:
    return number(cell.removesuffix("%"))


@lru_cache(maxsize=256)
def column(heading: str) -> Column:
    """Return how a column is read: `%usr` as `usr_percent`, `rxkB/s` as `rx_bytes_per_s`."""
    name, read = _column(heading)
    return Column(name, remembered(read))


def _column(heading: str) -> Column:
    known = table()["columns"].get(heading)
    if known is not None:
        name, factor = known
        if name.endswith(("_bytes", "bytes_per_s")):
            return Column(name, lambda cell: _bytes(cell, factor))
        return Column(name, number if factor == 1 else lambda cell: scaled(number(cell), factor))
    if heading == "Command":
        return Column(key(heading), str)
    if heading in table()["text"]:
        return Column(key(heading), _text)
    if heading.startswith("%"):
        return Column(f"{key(heading)}_percent", _percent)
    if kilobytes := _KILOBYTES.fullmatch(heading):
        return Column(f"{kilobytes[1]}_bytes", lambda cell: _bytes(cell, 1024))
    if heading.endswith("/s"):
        return Column(f"{key(heading.removesuffix('/s'))}_per_s", number)
    return Column(key(heading), number)


def is_heading(words: list[str]) -> bool:
    """Return whether words are headings: none is a number, and one is a column of sysstat's."""
    # A row ends with a number as a rule.
    if not words or any(number(word) is not None for word in reversed(words)):
        return False
    return words[0] in table()["known"] or any(
        word.endswith("/s") or (word[:1] == "%" and len(word) > 1) for word in words
    )


def table_name(headings: list[str]) -> str | None:
    """Return what a table with these columns is called, None for an unknown one."""
    for name, columns in table()["names"].items():
        if any(column in headings for column in columns):
            return str(name)
    return None


_TIME = re.compile(r"([0-9]{1,2})([:.時时시])([0-9]{1,2})[:.分분]([0-9]{1,2})[秒초]?")
_NOON = {"am": 0, "a.m.": 0, "vorm.": 0, "上午": 0, "午前": 0, "오전": 0,
         "pm": 12, "p.m.": 12, "nachm.": 12, "下午": 12, "午後": 12, "오후": 12}  # fmt: skip


def leading_time(words: list[str]) -> tuple[str, int] | None:
    """Return the time of day that a line begins with, as HH:MM:SS, and how many words it takes."""
    return _time(words[0], words[1] if len(words) > 1 else "") if words else None


# The lines of a round have one time, and words behind it that come again in every round.
@lru_cache(maxsize=4096)
def _time(first: str, second: str) -> tuple[str, int] | None:
    second = second.casefold()
    if first.casefold() in _NOON and (match := _TIME.fullmatch(second)):
        return _clock(match, _NOON[first.casefold()]), 2
    match = _TIME.fullmatch(first)
    if match is None:
        return None
    return (_clock(match, _NOON[second]), 2) if second in _NOON else (_clock(match, None), 1)


def _clock(match: re.Match[str], noon: int | None) -> str:
    hour = int(match[1]) if noon is None else int(match[1]) % 12 + noon
    return f"{hour:02d}:{int(match[3]):02d}:{int(match[4]):02d}"
