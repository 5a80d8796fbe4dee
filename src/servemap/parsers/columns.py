"""A table of any tool, of which only the headings are known: csv, boxes, columns under a line."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from servemap.parsers.cells import is_missing, quantity
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

COLUMNS = "columns"
_RULE = re.compile(r"[\s|+=─━┃│-]*")
_GAP = re.compile(r"\s{2,}")


def _boxed(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


# How a line is cut, tried in this order: what is rarest in a cell first.
_CUTS: tuple[Callable[[str], list[str]], ...] = (
    _boxed,
    lambda row: [cell.strip() for cell in row.split("\t")],
    lambda row: [cell.strip().strip('"') for cell in row.split(",")],
    lambda row: _GAP.split(row.strip()),
    str.split,
)


def parse_columns(text: str, headings: Sequence[str]) -> Extract:
    """The rows below a line that has all `headings` as cells, by bars, tabs, commas or blanks.

    `rows`: {heading: value}: the number that a cell begins with (its unit is what the reader
    declares), its text where it begins with none, None where it says that there is no value. The
    heading may come again. A line is cut in the first way in which it has as many cells as the
    headings; one that has so in no way is skipped.

    Raises:
        ParseError: there is no line with these headings.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    cuts: list[tuple[Callable[[str], list[str]], list[str]]] = []
    for line, row in ended(text, skipped):
        found = [(cut, names) for cut in _CUTS if set(headings) <= set(names := cut(row))]
        if found:
            cuts = found
        elif cuts and not _RULE.fullmatch(row):
            fitting = ((cut(row), names) for cut, names in cuts)
            fit = next((pair for pair in fitting if len(pair[0]) == len(pair[1])), None)
            if fit is None:
                cut, names = cuts[0]
                reason = f"{len(cut(row))} cells under {len(names)} headings"
                skipped.append(Skipped(line, reason))
            else:
                rows.append({name: _value(cell) for cell, name in zip(*fit, strict=True)})
    if not cuts:
        raise foreign(COLUMNS, f"line with the headings {', '.join(headings)}")
    return Extract({"rows": rows}, skipped)


def _value(cell: str) -> Any:
    if is_missing(cell):
        return None
    found = quantity(cell)
    return cell if found is None else found.value
