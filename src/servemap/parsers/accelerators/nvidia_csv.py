"""nvidia-smi --query-gpu and --query-compute-apps as csv."""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from servemap.parsers.accelerators.nvidia_fields import Column, column, make_column, says_failure
from servemap.parsers.cells import (
    ForeignCellError,
    Remembered,
    is_missing,
    quantity,
    read_cells,
    unit,
)
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, Notes, foreign
from servemap.parsers.records import Skipped

_HEADING = re.compile(r"[a-z][A-Za-z0-9_.]*(?: \[[^\]]*\])?")
# A name of nvidia-smi's has a dot, an underscore or a unit, or is one of these.
_PLAIN_NAMES = {"timestamp", "name", "count", "index", "serial", "uuid", "pstate", "pid"}
# May hold commas itself, as nvidia-smi does not quote.
_FREE_TEXT = "process_name"
_FOREIGN_CELL = "a cell without the unit of its column"
# What names a GPU, the surest first.
_IDENTITIES = ("uuid", "gpu_uuid", "serial", "gpu_serial", "pci_bus_id", "gpu_bus_id", "index")


def parse_csv(text: str) -> Extract:
    """Fields per GPU, or per process, one row a sample.

    `rows`: {key: value} with the names of the query, dots as `_`, and the unit of the heading:
    `memory_used_bytes`, `utilization_gpu_percent`, `power_draw_watts`, `clocks_sm_mhz`,
    `temperature_gpu_celsius`. Without a heading line (`noheader`) the columns cannot be known and
    are `column_1` and so on, with the units that stand in their cells. `timestamp` is the node's
    local time as printed. `gpus` counts the GPUs by the column that names them best (uuid, serial,
    bus id, index), never by rows or times; null without one. `error` is what nvidia-smi said
    instead of values, else null; then `rows` is null if there are none.

    Raises:
        ParseError: there is neither a row of at least two cells nor a message of nvidia-smi.
    """
    notes = Notes([], [])
    rows = [row for _, row in csv_rows(numbered(text), notes, cut_line(text))]
    found = rows if rows or not notes.said else None
    error = notes.said[0] if notes.said else None
    return Extract({"rows": found, "gpus": _gpus(rows), "error": error}, notes.skipped)


def csv_rows(
    lines: Iterable[tuple[int, str]], notes: Notes, unended: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the same rows of numbered lines, each with its line; ParseError likewise.

    Rows above the first heading come once it does. `unended` is a line whose end may be cut off.
    """
    columns: list[Column] | None = None
    heading: list[str] = []
    loose: list[tuple[int, list[str]]] = []
    skipped = notes.skipped
    keys: list[str] = []
    readers: list[Remembered[Any]] = []
    for line, row in lines:
        # Nearly all lines are so: as many cells as headings, and these are of small letters.
        if "!" <= row[0] < "a" and row[-1] != "," and line != unended:
            cells = row.split(", ")
            if len(cells) == len(readers) > 1:
                try:
                    found = read_cells(keys, readers, cells)
                except ForeignCellError:
                    skipped.append(Skipped(line, _FOREIGN_CELL))
                else:
                    yield line, found
                continue
        cells = _cells(row)
        if (columns is None or len(cells) != len(columns)) and says_failure(row):
            notes.said.append(row.strip())
        elif _is_heading(cells) and (len(cells) > 1 or columns is None):
            yield from _without_heading(loose)
            loose = []
            if cells != heading:
                heading = cells
                columns = [column(cell) for cell in cells]
                keys = [each.key for each in columns]
                readers = [Remembered(partial(_read, each)) for each in columns]
        elif columns is None:
            has_value = any(quantity(cell) or is_missing(cell) for cell in cells)
            if line == unended and not _unit_of(cells[-1]):
                skipped.append(Skipped(line, "cut in the last cell"))
                cells[-1] = ""
            is_heading = line == unended and _is_heading(cells[:-1])
            if (
                len(cells) > 1
                and has_value
                and not is_heading
                and (not loose or len(cells) == len(loose[0][1]))
            ):
                loose.append((line, cells))
            else:
                skipped.append(Skipped(line, "no row of cells"))
        else:
            whole = _fit(cells, columns)
            ending = columns[-1].spelling or "no unit"
            if whole is not None and line == unended and _unit_of(whole[-1]) != ending:
                skipped.append(Skipped(line, "cut in the last cell"))
                names = [each.key for each in columns]
                whole = ["" if name in (names[-1], _FREE_TEXT) else cell
                         for name, cell in zip(names, whole, strict=True)]  # fmt: skip
            if whole is None:
                skipped.append(Skipped(line, f"{len(cells)} cells under {len(columns)} headings"))
            else:
                try:
                    found = read_cells(keys, readers, whole)
                except ForeignCellError:
                    skipped.append(Skipped(line, _FOREIGN_CELL))
                else:
                    yield line, found
    # Cells that are all missing are found in any text with commas.
    told = any(quantity(cell) for _, cells in loose for cell in cells)
    if columns is None and not told and not notes.said:
        raise foreign("nvidia-smi csv", "heading line and no row of cells")
    yield from _without_heading(loose)


def _gpus(rows: list[dict[str, Any]]) -> int | None:
    """Return how many GPUs the rows are of; None where no column names them in every row."""
    for name in _IDENTITIES:
        named = {row.get(name) for row in rows}
        if rows and None not in named:
            return len(named)
    return None


def _is_heading(cells: list[str]) -> bool:
    return all(map(_HEADING.fullmatch, cells)) and any(
        cell in _PLAIN_NAMES or any(mark in cell for mark in "._[") for cell in cells
    )


def _cells(row: str) -> list[str]:
    separator = ", " if ", " in row else ","
    return [cell.strip() for cell in (row + " " if row.endswith(",") else row).split(separator)]


def _fit(cells: list[str], columns: list[Column]) -> list[str] | None:
    """Return as many cells as there are columns, or None; a free text takes the surplus."""
    surplus = len(cells) - len(columns)
    if surplus == 0:
        return cells
    names = [each.key for each in columns]
    if surplus > 0 and names.count(_FREE_TEXT) == 1:
        at = names.index(_FREE_TEXT)
        joined = ", ".join(cells[at : at + surplus + 1])
        return [*cells[:at], joined, *cells[at + surplus + 1 :]]
    return None


def _row(columns: list[Column], cells: list[str]) -> dict[str, Any]:
    return {each.key: each.read(cell) for each, cell in zip(columns, cells, strict=True)}


def _read(column: Column, cell: str) -> Any:
    """Return a value; ForeignCellError for a word where the column has a unit."""
    word = cell.strip()
    found = column.read(word)
    if found is None and column.spelling and not is_missing(word):
        raise ForeignCellError
    return found


def _unit_of(cell: str) -> str | None:
    """Return the unit that a cell ends with, None for a cell without a known one."""
    found = quantity(cell)
    return found.unit if found and unit(found.unit) else None


def _without_heading(
    loose: list[tuple[int, list[str]]],
) -> Iterator[tuple[int, dict[str, Any]]]:
    columns: list[Column] = []
    for number, below in enumerate(zip(*(cells for _, cells in loose), strict=True), start=1):
        spellings = {found.unit for found in map(quantity, below) if found}
        spelling = next(iter(spellings)) if len(spellings) == 1 else None
        columns.append(make_column(f"column_{number}", spelling))
    for line, cells in loose:
        yield line, _row(columns, cells)
