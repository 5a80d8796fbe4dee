"""A table of any tool, of which only the headings are known: csv, boxes, columns under a line."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from servemap.parsers.cells import is_missing, quantity, unit
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

COLUMNS = "columns"
_RULE = re.compile(r"[\s|+=─━┃│-]*")
_GAP = re.compile(r"\s{2,}")
_WORD = re.compile(r"\S+")
# `0x1F`, `01:23`, `12/80` are no number with a unit.
_UNIT = re.compile(r"[^\W\d_]+(?:/[^\W\d_]+)?|%|°[^\W\d_]?")
# A comma that may group digits, or be a decimal mark.
_GROUPED = re.compile(r"[+-]?\d{1,3},\d{3}(?!\d)")

Cut = Callable[[str], list[str]]


def _boxed(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


# How a line is cut, tried in this order: what is rarest in a cell first.
_CUTS: tuple[Cut, ...] = (
    _boxed,
    lambda row: [cell.strip() for cell in row.split("\t")],
    lambda row: [cell.strip().strip('"') for cell in row.split(",")],
    lambda row: _GAP.split(row.strip()),
    str.split,
)


def parse_columns(
    text: str, headings: Sequence[str], units: dict[str, str] | None = None
) -> Extract:
    """The rows below a line that has all `headings` as cells, by bars, tabs, commas or blanks.

    `rows`: {heading: value}: the number in a cell, without its unit (which the reader declares);
    its text where it is no number or may be two (`1,024`), None where it says that there is no
    value or has another unit than the cells of its column before it. The line of headings may come
    again. A line is cut in the first way in which it has as many cells as the headings; one that
    has so in no way is skipped, and so is one whose cells, cut at single blanks, do not stand
    under their headings.

    Args:
        text: of the tool.
        headings: those that are wanted.
        units: by heading, of the pages before this one; those that are new here are added.

    Raises:
        ParseError: there is no line with these headings, each once.
    """
    units = {} if units is None else units
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    heads: list[_Head] = []
    for line, row in ended(text, skipped):
        may_head = all(heading in row for heading in headings)
        found = [_Head(cut, cut(row), row) for cut in _CUTS] if may_head else []
        if found := [one for one in found if all(one.names.count(h) == 1 for h in headings)]:
            heads = found
        elif heads and not _RULE.fullmatch(row):
            fit = next(((one.names, cells) for one in heads if (cells := one.cells(row))), None)
            if fit is None:
                names, cells = heads[0].names, heads[0].cut(row)
                reason = f"{len(cells)} cells under {len(names)} headings"
                if len(cells) == len(names) or len(row.split()) == len(names):
                    reason = "cells that do not stand under their headings"
                skipped.append(Skipped(line, reason))
                continue
            made = {name: _value(cell, name, units) for name, cell in zip(*fit, strict=True)}
            rows.append({name: one for name, (one, _) in made.items()})
            said = [why for name, (_, why) in made.items() if why and name in headings]
            skipped += [Skipped(line, why) for why in said]
    if not heads:
        raise foreign(COLUMNS, f"line with the headings {', '.join(headings)}, each once")
    return Extract({"rows": rows}, skipped)


class _Head(NamedTuple):
    """A line of headings, and a way of cutting in which it has those that are wanted."""

    cut: Cut
    names: list[str]
    line: str

    def cells(self, row: str) -> list[str] | None:
        """Return the cells of a row; None where it does not fit the headings."""
        cells = self.cut(row)
        if len(cells) != len(self.names):
            return None
        if self.cut is not str.split or _stands_under(row, self.line):
            return cells
        # Of a table that is not laid out, each blank parts two cells, and a unit is none.
        plain = not _GAP.search(row.strip()) and not _GAP.search(self.line.strip())
        return cells if plain and not any(map(unit, cells)) else None


def _stands_under(row: str, heading: str) -> bool:
    """Return whether each word of a row has a place in common with its own heading."""
    words, heads = ([m.span() for m in _WORD.finditer(one.expandtabs())] for one in (row, heading))
    return all(
        begin < head_end and head_begin < end
        for (begin, end), (head_begin, head_end) in zip(words, heads, strict=True)
    )


def _value(cell: str, heading: str, units: dict[str, str]) -> tuple[Any, str | None]:
    """Return the value of a cell, and why it is missing where the cell does not say so."""
    if is_missing(cell):
        return None, None
    found = quantity(cell)
    if found is None or (found.unit and not _UNIT.fullmatch(found.unit)):
        return cell, None
    if _GROUPED.match(cell.strip()):
        return cell, f"{heading}: {cell.strip()} may be one number or another"
    if found.unit and found.unit != (first := units.setdefault(heading, found.unit)):
        return None, f"{heading} in {found.unit}, in {first} before"
    return found.value, None
