"""nccl-tests and rccl-tests: tables of collectives, as text or as JSON (-J)."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from servemap.parsers.cells import number, scaled
from servemap.parsers.communication.collective import collective_of
from servemap.parsers.communication.nccl_line import (
    NcclLine,
    before_host,
    nccl_lines,
    plain_line,
    untag,
)
from servemap.parsers.communication.nccl_tests_check import judged
from servemap.parsers.communication.nccl_tests_json import read_json
from servemap.parsers.communication.nccl_tests_rows import (
    Layout,
    are_values,
    has_other_units,
    is_start,
    read_heading,
    read_row,
)
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_PROGRAM = re.compile(
    r"(?<![a-z_])(all_gather|all_reduce|alltoallv?|broadcast|gather|hypercube|reduce|reduce_scatter"
    r"|scatter|sendrecv)_perf(?![a-z_])"
)
_DEVICE = re.compile(
    r"Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?\s+Pid\s+(\d{1,10})\s+on\s+(\S{1,255})"
    r"\s+device\s+(\d{1,4})\s+\[([\w:.]{1,40})\]\s+(\S.{0,200})"
)
_PARAMETER = re.compile(
    r"(?<![A-Za-z_])([A-Za-z_]+(?: iters)?):? (-?\d{1,20})(?!\S*:)(\((?:factor|bytes)\))?"
)
_PARAMETERS = {
    "nThread": "threads_per_process", "nGpus": "devices_per_thread", "minBytes": "min_bytes",
    "maxBytes": "max_bytes", "warmup iters": "warmup_iterations", "iters": "iterations",
    "agg iters": "aggregated_iterations",
}  # fmt: skip
_FAILURE = re.compile(r"Test (?:CUDA failure|NCCL failure|failure|timeout) .{1,300}")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,20})")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S{1,40})(?:\s+(OK|FAILED))?")
# Comments, of which a document may have dropped the mark, and the version line of rccl-tests.
_REMARKS = ("#", "Using devices", "out-of-place", "(B)", "rccl-tests: Version")
# A row is at most 13 + 2 x 8 cells of a few digits; longer text is something else.
_LONGEST_ROW = 1000
_NUMBER_BEFORE_A_NAME = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?(?:e[-+]\d{1,3})?(?=[A-Za-z_])|N/A")


@dataclass
class _Run:
    """One run of one program, as it is read."""

    process: str
    program: str | None = None
    parameters: dict[str, int] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    layout: Layout | None = None
    other_units: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    out_of_bounds: int | None = None
    average: float | int | None = None
    average_check: str | None = None
    ended: bool = False


@dataclass
class _Reader:
    """What is known while the lines of one process go by."""

    process: str
    runs: list[_Run] = field(default_factory=list)
    program: str | None = None
    broken: str = ""
    broken_line: int = 0


def parse_nccl_tests(text: str) -> Extract:
    """Bandwidth and time of collectives by message size.

    `runs`, one a program that ran: `process` (what a launcher wrote before the lines, else empty),
    `collective` and `collective_from` (`name`; `columns` where only one collective writes such a
    table; null where several do), `parameters`, `ranks` (the highest rank + 1, null where none is
    listed), `nodes` (null unless every rank is listed), `duplicate_ranks` (ranks listed more than
    once: the processes did not find each other), `distributed` (false for one rank or a doubled
    one: no figure is of several GPUs; null where none is listed), `devices`, `rows`,
    `out_of_bounds` (wrong values as the program counts them), `average_busbw_bytes_per_s`,
    `average_check`, `wrong_at_bytes` (sizes with wrong values, `out_of_place` and `in_place` apart;
    null where nothing was checked) and `summary_contradicted` (true where the summary finds no
    fault and a row does; null without a summary).

    A row has `size_bytes`, `count`, `type`, `redop`, `root`, and for `out_of_place` and `in_place`
    `time_s`, `algbw_bytes_per_s`, `busbw_bytes_per_s` and `wrong` (of the layout before 2.13:
    `max_error`), null where values were not checked. Rows that lines of NCCL's own log break are
    joined again; those below other units than us and GB/s are skipped. The log itself is another
    kind, nccl-log. `failures` are the program's own lines
    on why it stopped.

    Raises:
        ParseError: there is no row and no device of nccl-tests.
    """
    if text.lstrip().startswith("{"):
        return read_json(text)
    readers: dict[str, _Reader] = {}
    skipped: list[Skipped] = []
    failures: list[dict[str, Any]] = []
    hosts: set[str] = set()
    for line, row in ended(text, skipped):
        if plain_line(row):
            continue
        process, rest = untag(row)
        reader = readers.setdefault(process, _Reader(process))
        messages = nccl_lines(rest)
        if messages:
            fragment = _fragment(messages[0], hosts)
            if fragment and not _read_cells(reader, line, fragment, skipped):
                skipped.append(Skipped(line, "a broken row: where NCCL's line begins is unclear"))
        elif failure := _FAILURE.search(rest):
            failures.append({"line": line, "text": failure[0]})
        elif not _read_cells(reader, line, rest, skipped) and not _read_line(reader, rest, hosts):
            skipped.append(Skipped(line, "no line of nccl-tests"))
    for reader in readers.values():
        _drop(reader, skipped)
    runs = [_finished(run) for reader in readers.values() for run in reader.runs if run.ended]
    if not runs and not failures:
        raise foreign("nccl-tests", "table of sizes and bandwidths, and no list of ranks")
    return Extract({"runs": runs, "failures": failures}, sorted(skipped))


def _fragment(message: NcclLine, hosts: set[str]) -> str:
    """Return the part of a row before a message of NCCL that ran into it."""
    host = message.host or ""
    if host in hosts or not message.lead.strip():
        return message.lead.strip()
    end = before_host(host, hosts)
    if end is not None:
        return message.lead + end
    match = _NUMBER_BEFORE_A_NAME.match(host)
    return message.lead + (match[0] if match else "")


def _read_line(reader: _Reader, line: str, hosts: set[str]) -> bool:
    """Read a line that is no row: a heading, the parameters, a rank, a summary, a comment."""
    if named := _PROGRAM.search(line):
        if reader.runs and not reader.runs[-1].rows:
            reader.runs[-1].program = named[1]
        elif "concluded" not in line:
            reader.program = named[1]
    if layout := read_heading(line):
        run = _run(reader, new=False)
        run.layout = layout
        return True
    if has_other_units(line):
        _run(reader, new=False).other_units = True
    elif "nThread" in line and "nGpus" in line:
        _read_parameters(_run(reader, new=True), line)
    elif device := _DEVICE.search(line):
        hosts.add(device[4])
        run = _run(reader, new=False)
        run.ended = True
        run.devices.append(_device(device))
    elif found := _OUT_OF_BOUNDS.search(line):
        _run(reader, new=False).out_of_bounds = int(found[1])
    elif found := _AVERAGE.search(line):
        run = _run(reader, new=False)
        run.average, run.average_check = scaled(number(found[1]), 1e9), found[2]
    else:
        return named is not None or line.lstrip().startswith(_REMARKS)
    return True


def _run(reader: _Reader, new: bool) -> _Run:
    """Return the run that a line belongs to; a new one begins after rows or a summary."""
    last = reader.runs[-1] if reader.runs else None
    if last is None or (new and (last.rows or last.average is not None)):
        reader.runs.append(_Run(reader.process, reader.program))
        reader.program = None
    return reader.runs[-1]


def _read_parameters(run: _Run, line: str) -> None:
    for name, value, of in _PARAMETER.findall(line):
        if of:
            name = f"{name}_{of.strip('()')}"
        run.parameters[_PARAMETERS.get(name, name)] = int(value)


def _device(found: re.Match[str]) -> dict[str, Any]:
    rank, group, pid, host, device, bus_id, name = found.groups()
    return {
        "rank": int(rank),
        "group": None if group is None else int(group),
        "pid": int(pid),
        "host": host,
        "device": int(device),
        "bus_id": bus_id,
        "name": name.strip(),
    }


def _read_cells(reader: _Reader, line: int, text: str, skipped: list[Skipped]) -> bool:
    """Read a row or a part of one; return whether the text is either."""
    if is_start(text):
        _drop(reader, skipped)
        reader.broken, reader.broken_line = text, line
    elif reader.broken and are_values(text):
        reader.broken += f" {text}"
    else:
        return False
    run = _run(reader, new=False)
    row = read_row(reader.broken, run.layout)
    if row and run.other_units:
        skipped.append(Skipped(line, "a row in other units than us and GB/s"))
        reader.broken = ""
    elif row:
        run.rows.append(row)
        run.ended = True
        reader.broken = ""
    elif len(reader.broken) > _LONGEST_ROW:
        _drop(reader, skipped)
    return True


def _drop(reader: _Reader, skipped: list[Skipped]) -> None:
    if reader.broken:
        skipped.append(Skipped(reader.broken_line, "a row that is cut short"))
    reader.broken = ""


def _finished(run: _Run) -> dict[str, Any]:
    listed = Counter(device["rank"] for device in run.devices)
    whole = bool(listed) and len(listed) == max(listed) + 1
    columns = run.layout.lead if run.layout else ()
    old = run.layout is not None and "error" in run.layout.bodies[0]
    inferred = None if run.program else collective_of(columns, old, run.rows)
    found = {
        "process": run.process,
        "collective": run.program or inferred,
        "collective_from": "name" if run.program else "columns" if inferred else None,
        "parameters": run.parameters,
        "ranks": max(listed) + 1 if listed else None,
        "nodes": len({device["host"] for device in run.devices}) if whole else None,
        "duplicate_ranks": sorted(rank for rank, times in listed.items() if times > 1),
        "devices": run.devices,
        "rows": run.rows,
        "out_of_bounds": run.out_of_bounds,
        "average_busbw_bytes_per_s": run.average,
        "average_check": run.average_check,
    }
    return judged(found)
