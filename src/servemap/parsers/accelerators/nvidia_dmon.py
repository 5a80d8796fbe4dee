"""nvidia-smi dmon and pmon."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

from servemap.parsers.accelerators.nvidia_fields import Column, make_column, says_failure
from servemap.parsers.cells import key, remembered
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, Notes, foreign
from servemap.parsers.records import Skipped

_TYPE = re.compile(r"[CGM](?:\+[CGM])*")
# The index of the GPU, or the form of the date before it (-o D).
_FIRST_UNITS = ("idx", "yyyymmdd", "hh:mm:ss")
_MOST_GPUS = 1000
_TEXTS = ("command", "name", "date", "time")

_Columns = tuple[list[Column], list[tuple[str, Callable[[str], Any]]]]
"""The columns of a table, and the key of each with what reads its cells."""


def parse_dmon(text: str) -> Extract:
    """Samples of nvidia-smi dmon, or of pmon: one row a tick and GPU, or a tick and process.

    `rows`: {key: value}, keys as in the heading with the unit of the line below it: `gpu`,
    `pwr_watts`, `gtemp_celsius`, `mtemp_celsius`, `sm_percent`, `mem_percent`, `mclk_mhz`,
    `pclk_mhz`, `fb_bytes` (dmon's MB are of 1048576 bytes), `pid`, `type`, `command`. `tick` counts
    from 0; a new one begins where a GPU, or a process on it, comes again. A tick that was cut has
    fewer rows than the others.

    Raises:
        ParseError: there is no heading line that begins with `#`.
    """
    notes = Notes([], [])
    rows = [row for _, row in dmon_rows(numbered(text), notes, cut_line(text))]
    return Extract({"rows": rows}, notes.skipped)


def dmon_rows(
    lines: Iterable[tuple[int, str]], notes: Notes, unended: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the same rows of numbered lines, each with its line; ParseError likewise.

    `unended` is a line whose end may be cut off.
    """
    names: list[str] | None = None
    columns: list[Column] = []
    readers: list[tuple[str, Callable[[str], Any]]] = []
    skipped = notes.skipped
    tick, seen = 0, set[tuple[Any, ...]]()
    right_edge = 0
    for line, row in lines:
        if row.lstrip().startswith("#"):
            words = _words(row.replace("#", " ", 1))
            if "gpu" in [word.casefold() for word in words]:
                right_edge = len(row)
                if words != names:
                    names = words
                    columns = [make_column(key(name), None) for name in names]
                    readers = _readers(columns)
            elif names is not None and (named := _dmon_columns(tuple(names), tuple(words))):
                columns, readers = named
            continue
        # A row begins with the number of its GPU, which hardly a message does.
        if (not row.lstrip()[:1].isdigit() or "command" in row) and says_failure(row):
            skipped.append(Skipped(line, "a message of the tool"))
            continue
        cells = _words(row)
        last = columns[-1].key if columns else None
        if last in ("command", "name") and len(cells) > len(columns):
            cells = [*cells[: len(columns) - 1], " ".join(cells[len(columns) - 1 :])]
        if not columns or len(cells) != len(columns):
            reason = f"{len(cells)} words under {len(columns)} headings"
            skipped.append(Skipped(line, reason if columns else "no heading before it"))
            continue
        # The columns are aligned on the right.
        if line == unended and len(row) < right_edge:
            skipped.append(Skipped(line, "cut in the last cell"))
            cells[-1] = ""
        try:
            found = {name: read(cell) for (name, read), cell in zip(readers, cells, strict=True)}
        except _ForeignCellError:
            found = {}
        identity = (found.get("gpu"), found.get("pid"))
        if not _is_index(identity[0]):
            skipped.append(Skipped(line, "no row of a GPU"))
            continue
        if identity in seen:
            tick, seen = tick + 1, set()
        seen.add(identity)
        yield line, {"tick": tick, **found}
    if names is None:
        raise foreign("nvidia-smi dmon", "heading line such as `# gpu   pwr  gtemp`")


def _is_index(gpu: Any) -> bool:
    return isinstance(gpu, int) and 0 <= gpu < _MOST_GPUS


class _ForeignCellError(Exception):
    """A cell is none that its column may hold; another tool's row has such."""


def _read(column: Column, cell: str) -> Any:
    found = column.read(cell)
    if column.key == "type":
        is_own = found is None or _TYPE.fullmatch(str(found)) is not None
    else:
        is_own = column.key in _TEXTS or not isinstance(found, str)
    if not is_own:
        raise _ForeignCellError
    return found


def _words(row: str) -> list[str]:
    return [word.strip() for word in row.split(",")] if "," in row else row.split()


@lru_cache(maxsize=64)
def _dmon_columns(names: tuple[str, ...], units: tuple[str, ...]) -> _Columns | None:
    """Return the columns of a heading and the line of units below it, None for other lines."""
    if len(units) != len(names) or units[0].casefold() not in _FIRST_UNITS:
        return None
    # dmon writes MB for MiB, as its sums with `nvidia-smi -q` show.
    columns = [
        make_column(key(name), "MiB" if spelling == "MB" else spelling)
        for name, spelling in zip(names, units, strict=True)
    ]
    return columns, _readers(columns)


def _readers(columns: list[Column]) -> list[tuple[str, Callable[[str], Any]]]:
    return [(each.key, remembered(partial(_read, each))) for each in columns]
