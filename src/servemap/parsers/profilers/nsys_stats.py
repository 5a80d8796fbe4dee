"""Summaries of Nsight Systems: what `nsys stats` prints, as tables for people or as CSV."""

import csv
import re
from dataclasses import dataclass, field
from typing import Any

from servemap.parsers.clean import cut_line
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.profilers.amounts import Amount, heading_of, kept_number
from servemap.parsers.records import Skipped

_NAMED = (
    re.compile(r"\[[0-9]{1,3}/[0-9]{1,3}\] Executing '([a-z0-9_]{1,60})' stats report"),
    re.compile(r"Processing \[.{0,2000}\] with \[(?:.{0,2000}/)?([a-z0-9_]{1,60})[^/\]]{0,200}\]"),
    re.compile(r"[ \t]*\*\* .{1,200} \(([a-z0-9_]{1,60})[^()]{0,200}\):"),
)
_EMPTY = re.compile(r"SKIPPED: .{0,4000} (does not contain .{1,200} data)\.?")
_RULE = re.compile(r"[ \t]*-+(?: +-+)+[ \t]*")
_DASHES = re.compile(r"-+")
# Columns that hold text; all others hold numbers.
_TEXT = frozenset({
    "name", "range", "operation", "style", "category", "kernel_name", "api_name", "nvtx_range",
    "event_type", "gridxyz", "blockxyz", "source", "device", "event", "queue_type", "mem_op",
})  # fmt: skip


@dataclass
class _Table:
    """The table that is being read: its columns, and where they stand unless it is CSV."""

    columns: list[tuple[str, Amount | None]]
    spans: list[tuple[int, int]] | None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take(self, line: str) -> bool:
        """Take a row; return whether it is one."""
        cells = _csv_cells(line) if self.spans is None else _placed_cells(line, self.spans)
        if len(cells) != len(self.columns):
            return False
        row: dict[str, Any] = {}
        for (name, kept), cell in zip(self.columns, cells, strict=True):
            text = cell.strip()
            row[name] = (text or None) if name in _TEXT else kept_number(text, kept)
        if all(value is None for name, value in row.items() if name not in _TEXT):
            return False
        self.rows.append(row)
        return True


class _Reader:
    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.skipped: list[Skipped] = []
        self.name: str | None = None
        self.table: _Table | None = None
        self.before = ""

    def line(self, number: int, line: str) -> None:
        """Take one line that is not blank."""
        before, self.before = self.before, line
        started = _ruled(before, line) or _csv_heading(line)
        if started is not None:
            self.table = started
            self.reports.append({"report": self.name, "rows": started.rows, "empty": None})
            self.name = None
        elif found := next((at[1] for rule in _NAMED if (at := rule.match(line))), None):
            self.table, self.name = None, found
        elif empty := _EMPTY.match(line.strip()):
            self.reports.append({"report": self.name, "rows": [], "empty": empty[1]})
            self.table = self.name = None
        elif self.table is not None and not self.table.take(line):
            self.skipped.append(Skipped(number, "the line does not fit the table's heading"))

    def blank(self) -> None:
        """A blank line ends a table that has rows."""
        self.before = ""
        if self.table is not None and self.table.rows:
            self.table = None


def parse_nsys_stats(text: str) -> Extract:
    """Summaries of Nsight Systems, one for each report that was printed.

    `reports`: list of `report` (such as `cuda_gpu_kern_sum`; null where no line names it), `rows`
    and `empty` (why it has none: the recording holds no such data; else null). A row has a key for
    each column of that version: `time_percent`, `total_time_ns`, `instances` or `num_calls` or
    `count`, `avg_ns`, `med_ns`, `min_ns`, `max_ns`, `stddev_ns`, and what it is about: `name`,
    `range` with `style`, or `operation`. Times are ns and sizes bytes (`total_bytes`, `avg_bytes`)
    in whatever unit they were printed. `time_percent` is the share of the table's own total, not of
    the run.

    Raises:
        ParseError: there is no such summary.
    """
    reader = _Reader()
    cut = cut_line(text)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            reader.blank()
        elif number == cut:
            reader.skipped.append(Skipped(number, "the line has no end, so it may be cut"))
        else:
            reader.line(number, line)
    if not reader.reports:
        raise foreign("nsys stats", "summary, such as cuda_gpu_kern_sum")
    return Extract({"reports": reader.reports}, reader.skipped)


def _ruled(heading: str, line: str) -> _Table | None:
    """Return the table whose heading is underlined by a line of dashes."""
    if not _RULE.fullmatch(line):
        return None
    spans = [match.span() for match in _DASHES.finditer(line)]
    names = _placed_cells(heading, spans)
    if not names or not all(name.strip() for name in names):
        return None
    return _Table([heading_of(name) for name in names], spans)


def _csv_heading(line: str) -> _Table | None:
    if line.count(",") < 3 or "(" not in line:
        return None
    columns = [heading_of(name) for name in _csv_cells(line)]
    names = [name for name, _ in columns]
    if not _TEXT & set(names) or not any(kept for _, kept in columns) or len(set(names)) < 4:
        return None
    return _Table(columns, None)


def _csv_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _placed_cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """Return what stands in the columns; nothing where something stands between two of them."""
    begins = [start for start, _ in spans]
    gaps = zip([0, *(end for _, end in spans[:-1])], begins, strict=True)
    if any(line[end:begin].strip() for end, begin in gaps):
        return []
    return [*(line[start:end] for start, end in spans[:-1]), line[begins[-1] :]]
