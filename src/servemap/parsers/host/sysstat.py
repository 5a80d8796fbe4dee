"""Tables of mpstat, pidstat and sar: headings that come again, rows that begin with a time."""

import re
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.cells import ForeignCellError, Remembered, read_cells
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.host.sysstat_columns import (
    column,
    is_heading,
    leading_time,
    strict_reader,
    table_name,
)
from servemap.parsers.jsontext import read_document
from servemap.parsers.records import Skipped
from servemap.parsers.values import mapping, sequence

Row = dict[str, Any]

_HOST = re.compile(r"(\S+) (\S+) \(([^)]*)\)\s+(\S+)(?:\s+(_\S+_))?(?:\s+\(([0-9]+) CPUs?\))?")
_RESTART = re.compile(r"LINUX[ -]RESTART(?:\s+\(([0-9]+) CPUs?\))?")
_EPOCH = re.compile(r"[0-9]{9,11}")
# One word of letters; what a launcher puts before lines has digits, blanks or hyphens.
_AVERAGE = re.compile(r"[^\W\d_]{2,20}\.?[:：]")
_FREE_TEXT = "Command"


class _Tables:
    """Tables by their headings, in order of appearance."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, ...], dict[str, Any]] = {}
        self.headings: list[str] = []
        self.keys: list[str] = []
        self.readers: list[Remembered[Any]] = []
        self.open: dict[str, Any] | None = None
        self.right_edge = 0
        self.has_epoch = False
        self.has_free_text = False

    def begin(self, headings: list[str], right_edge: int, has_epoch: bool = False) -> None:
        self.right_edge, self.has_epoch = right_edge, has_epoch
        self.headings = headings
        self.keys = [column(heading).key for heading in headings]
        self.readers = [strict_reader(heading) for heading in headings]
        names = tuple(headings)
        if names not in self.found:
            self.found[names] = {"name": table_name(headings), "columns": self.keys,
                                 "rows": [], "averages": []}  # fmt: skip
        self.open = self.found[names]
        self.has_free_text = headings[-1] == _FREE_TEXT

    def read(self, words: list[str]) -> Row | str:
        """Return the row of some words, or why they are none."""
        width = len(self.keys)
        if self.open is None:
            return "no heading before it"
        if self.has_free_text and len(words) > width:
            words = [*words[: width - 1], " ".join(words[width - 1 :])]
        if len(words) != width:
            return f"{len(words)} words under {width} headings"
        if words[0] == self.headings[0]:
            return "a heading that is not known"
        try:
            return read_cells(self.keys, self.readers, words)
        except ForeignCellError:
            return "a cell that is no value of its column"


def read_tables(kind: str, text: str) -> Extract:
    """Return the tables of one of sysstat's tools; their JSON form as it is."""
    if text.lstrip()[:1] == "{":
        return read_json(kind, text)
    tables = _Tables()
    host: Row | None = None
    restarts: list[Row] = []
    comments: list[Row] = []
    skipped: list[Skipped] = []
    line, row = 0, ""
    last: Row | None = None
    unended = cut_line(text)
    for line, row in numbered(text):
        last = None
        words = row.split()
        if "(" in row and (facts := host_of(row)):
            host = host or facts
            continue
        is_epoch = words[0] == "#" and is_heading(words[2:])
        if line == unended and (is_epoch or _is_of_words(words)):
            skipped.append(Skipped(line, "a line without its end"))
            continue
        if is_epoch:
            tables.begin(words[2:], len(row), has_epoch=True)
            continue
        time = leading_time(words)
        rest = words[time[1] :] if time else words
        if time and "RESTART" in row and (restart := _RESTART.match(" ".join(rest))):
            restarts.append({"time": time[0], "cpus": int(restart[1][:9]) if restart[1] else None})
        elif time and rest[:1] == ["COM"]:
            comments.append({"time": time[0], "comment": " ".join(rest[1:])})
        elif time and is_heading(rest):
            tables.begin(rest, len(row))
        elif time or (tables.has_epoch and _EPOCH.fullmatch(words[0])):
            found = tables.read(rest if time else words[1:])
            if isinstance(found, str):
                skipped.append(Skipped(line, found))
            elif tables.open:
                stamp = {"time": time[0]} if time else {"t_s": int(words[0])}
                last = {**stamp, **found}
                tables.open["rows"].append(last)
        elif average := _average(words):
            if is_heading(average):
                tables.begin(average, len(row))
                continue
            found = tables.read(average)
            if isinstance(found, str):
                skipped.append(Skipped(line, found))
            elif tables.open:
                tables.open["averages"].append(found)
                last = found
        else:
            skipped.append(Skipped(line, "no heading, row or average"))
    # All columns but a command are aligned on the right.
    is_cut = len(row) < tables.right_edge or tables.has_free_text
    if last is not None and line == unended and is_cut:
        skipped.append(Skipped(line, "cut in the last cell"))
        last[tables.keys[-1]] = None
    if not tables.found:
        raise foreign(kind, "heading line with a time and the columns")
    data = {"host": host, "tables": list(tables.found.values()), "restarts": restarts,
            "comments": comments}  # fmt: skip
    return Extract(data, skipped)


def _is_of_words(words: list[str]) -> bool:
    """Whether a line is a heading or a comment, which look the same where they are cut."""
    time = leading_time(words)
    rest = words[time[1] :] if time else _average(words)
    return rest[:1] == ["COM"] or is_heading(rest)


def _average(words: list[str]) -> list[str]:
    """Return the words behind `Average:` in whatever language; none if the line is no average."""
    if _AVERAGE.fullmatch(words[0]):
        return words[1:]
    return words[2:] if len(words) > 2 and words[1] == ":" and words[0].isalpha() else []


def host_of(row: str) -> Row | None:
    """Return the facts in the line that sysstat's tools begin with, None for any other line."""
    match = _HOST.match(row[:500])
    if match is None or not (match[5] or match[6]):
        return None
    return {
        "system": match[1],
        "release": match[2],
        "host": match[3],
        "date": match[4],
        "machine": match[5].strip("_") if match[5] else None,
        "cpus": int(match[6][:9]) if match[6] else None,
    }


def read_json(kind: str, text: str) -> Extract:
    """Return the host's facts and the statistics of sysstat's JSON, as the tool names them.

    Raises:
        ParseError: it is no JSON of sysstat.
    """
    document, skipped = read_document(kind, text)
    hosts = sequence(mapping(mapping(document).get("sysstat")).get("hosts"))
    if not hosts or not isinstance(hosts[0], dict):
        raise ParseError("there is no host in the document", kind, "give sysstat's JSON output")
    first = hosts[0]
    data: Row = {
        "host": {
            "system": first.get("sysname"),
            "release": first.get("release"),
            "host": first.get("nodename"),
            "date": first.get("date") or first.get("file-date"),
            "machine": first.get("machine"),
            "cpus": first.get("number-of-cpus"),
        },
        "statistics": sequence(first.get("statistics")),
        "restarts": sequence(first.get("restarts")),
        "comments": sequence(first.get("comments")),
    }
    return Extract(data, skipped)


def parse_mpstat(text: str) -> Extract:
    """Use of every CPU, and interrupts, as mpstat prints or writes as JSON.

    `host`: {`system`, `release`, `host`, `date` (as printed), `machine`, `cpus`}. `tables`: one for
    each set of columns, `name` (`cpu`, `cpu_interrupts`, `soft_interrupts`, null for another one),
    `columns`, `rows` and `averages` (the lines `Average:`, in whatever language). A row has `time`
    (HH:MM:SS of the day, 12-hour clocks resolved), `cpu` (`all` or its number as text) and the
    values: `usr_percent`, `idle_percent`. `restarts` and `comments`: lines of that kind. JSON
    (-o JSON) gives `statistics` with sysstat's own names and units instead of `tables`.

    Raises:
        ParseError: there is no heading line.
    """
    return read_tables("mpstat", text)


def parse_pidstat(text: str) -> Extract:
    """Figures of tasks, as pidstat prints or writes as JSON.

    As `mpstat`; tables are `task_cpu`, `task_memory`, `task_io`, `task_switches`, `task_stack`. A
    row has `time`, or `t_s` (epoch seconds, with -H or -h), `uid`, `pid` or `tgid` and `tid` (null
    for `-`), the values (`cpu_percent`, `rss_bytes`, `cswch_per_s`) and `command`. pidstat's
    kilobytes are of 1024 bytes.

    Raises:
        ParseError: there is no heading line.
    """
    return read_tables("pidstat", text)


def parse_sar(text: str) -> Extract:
    """Figures of the machine over time, as sar prints.

    As `mpstat`; tables are named `cpu`, `network`, `network_errors`, `memory`, `queue`, `paging`
    and so on, null where the columns are not known. A row has `time`, the column that names what it
    is about (`cpu`, `iface`, `intr`, `dev`) and the values: `rx_bytes_per_s`, `idle_percent`. sar's
    kilobytes are of 1024 bytes.

    Raises:
        ParseError: there is no heading line.
    """
    return read_tables("sar", text)
