"""Rows of the tables of nccl-tests and rccl-tests, whole or broken by lines of other writers."""

import re
from typing import Any, NamedTuple

from servemap.parsers.cells import Number, is_missing, number, scaled

_HEADING = re.compile(r"#?\s*size\s+count\s")
# size, count, type, redop, root; out-of-place and in-place each time, algbw, busbw, #wrong.
_UNITS = re.compile(r"#?\s*\(\w{1,8}\)\s+\(elements\)")
_READ_UNITS = {"(B)", "(elements)", "(us)", "(GB/s)", "(%)"}
_LEAD = ("size", "count", "type", "redop", "root")
_BODY = ("time", "algbw", "busbw", "#wrong")
_START = re.compile(r"\s*\d{1,20}\s+\d{1,20}\s+[a-z][a-z0-9_]{1,20}(?:\s|$)")
_NOT_FINITE = frozenset({"nan", "inf"})
_KEYS = {
    "time": ("time_s", 1e-6),
    "cputime": ("cpu_time_s", 1e-6),
    "algbw": ("algbw_bytes_per_s", 1e9),
    "busbw": ("busbw_bytes_per_s", 1e9),
    "#wrong": ("wrong", 1),
    "error": ("max_error", 1),
    "i_min": ("iteration_min_s", 1e-6),
    "i_max": ("iteration_max_s", 1e-6),
    "i_p99": ("iteration_p99_s", 1e-6),
    "i_cv%": ("iteration_cv_percent", 1),
}
# Where the heading was cut off, the number of cells tells the layout (src/common.cu, src/util.cu
# and, before 2.13, the line headers of the single tests).
_BLANKS_OF_AN_ABSENT_HALF = re.compile(r"\S\s{20,}\S")


class Layout(NamedTuple):
    """Columns of a table: those before the measurements, and those of each measurement."""

    lead: tuple[str, ...]
    bodies: tuple[tuple[str, ...], ...]
    timestamp: bool = False

    @property
    def cells(self) -> int:
        """How many cells a row has with none blank; a timestamp is a date and a time."""
        return len(self.lead) + sum(map(len, self.bodies)) + 2 * self.timestamp


def read_heading(line: str) -> Layout | None:
    """Return the layout that a heading line names, None if it is not one, or not whole."""
    if not _HEADING.match(line):
        return None
    names = line.lstrip("# \t").replace("# wrong", "#wrong").split()
    lead = tuple(name for name in names if name in _LEAD)
    bodies: list[list[str]] = []
    for name in names[len(lead) :]:
        if name in ("time", "cputime"):
            bodies.append([])
        if bodies and name in _KEYS:
            bodies[-1].append(name)
    if (
        lead[:3] != _LEAD[:3]
        or not bodies
        or len({tuple(body) for body in bodies}) != 1
        or len(bodies) > 2
    ):
        return None
    return Layout(lead, tuple(map(tuple, bodies)), names[-1] == "timestamp")


def has_other_units(line: str) -> bool:
    """Whether a line is the one of a table's units, and names one that the program does not use."""
    return _UNITS.match(line) is not None and not _READ_UNITS.issuperset(
        re.findall(r"\([^()\s]{1,20}\)", line)
    )


def _layout_of(cells: list[str]) -> Layout | None:
    lead = len(cells) - 2 * len(_BODY)
    if not 3 <= lead <= len(_LEAD):
        return None
    last = "root" if lead == 4 and number(cells[3]) is not None else "redop"
    names = _LEAD if lead == 5 else (*_LEAD[:3], *((last,) if lead == 4 else ()))
    return Layout(names, (_BODY, _BODY))


def is_start(text: str) -> bool:
    """Whether a text begins a row: its size, count and type."""
    return _START.match(text) is not None


def are_values(text: str) -> bool:
    """Whether a text may be a later part of a broken row: nothing but numbers and N/A."""
    cells = text.split()
    return bool(cells) and all(_is_value(cell) for cell in cells)


def _is_value(cell: str) -> bool:
    return number(cell) is not None or is_missing(cell) or cell.lstrip("-") in _NOT_FINITE


def read_row(text: str, layout: Layout | None) -> dict[str, Any] | None:
    """Return a row whose parts are joined by blanks, or None if it is not whole.

    Sizes are bytes, times seconds, rates bytes/s. A blank redop and `none` are None, as is the
    root -1; what was not checked is None.
    """
    cells = text.split()
    layout = layout or _layout_of(cells)
    if layout is None or len(cells) < 4:
        return None
    if "redop" in layout.lead and number(cells[3]) is not None:
        cells.insert(3, "")
    bodies: tuple[tuple[str, ...] | None, ...] = layout.bodies
    if len(cells) == layout.cells - len(layout.bodies[0]) and len(bodies) == 2:
        # rccl-tests and the replay of a trace print the in-place half only.
        if not _BLANKS_OF_AN_ABSENT_HALF.search(text.strip()):
            return None
        bodies = (None, layout.bodies[1])
    elif len(cells) != layout.cells:
        return None
    lead, rest = cells[: len(layout.lead)], cells[len(layout.lead) :]
    halves: list[dict[str, Number | None] | None] = []
    for body in bodies:
        if body is None:
            halves.append(None)
            continue
        values = dict(map(_cell, body, rest))
        if any(
            value is None and not _is_value(cell)
            for value, cell in zip(values.values(), rest, strict=False)
        ):
            return None
        halves.append(values)
        rest = rest[len(body) :]
    if len(halves) == 1:
        halves.insert(0, None)
    found = dict(zip(layout.lead, lead, strict=True))
    size, count = number(found["size"]), number(found["count"])
    if not isinstance(size, int) or not isinstance(count, int) or size < 0 or count < 0:
        return None
    root = number(found.get("root", ""))
    redop = found.get("redop") or "none"
    return {
        "size_bytes": size,
        "count": count,
        "type": found["type"],
        "redop": None if redop == "none" else redop,
        "root": root if isinstance(root, int) and root >= 0 else None,
        "out_of_place": halves[0],
        "in_place": halves[1],
    }


def _cell(name: str, cell: str) -> tuple[str, Number | None]:
    key, factor = _KEYS[name]
    value = number(cell)
    if name == "#wrong" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return key, scaled(value, factor)
