"""Metrics of Nsight Compute: `ncu --csv`, a column a metric (raw) or a line a metric (details)."""

import csv
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import yaml

from servemap.model.errors import ParseError
from servemap.parsers.cells import Number
from servemap.parsers.clean import cut_line
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.profilers.amounts import Amount, amount_of, grouping_mark, kept_number
from servemap.parsers.records import Skipped

_STALL = re.compile(
    r"smsp__average_warps_issue_stalled_([a-z0-9_]{1,60})_per_issue_active\.ratio"
    r"|Stall ([A-Z][A-Za-z ]{1,60})"
)
_BYTES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
_HERTZ = {"hz": 1, "Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9,
          "cycle/second": 1, "cycle/usecond": 1e6, "cycle/nsecond": 1e9}  # fmt: skip
_SUFFIXES = ("percent", "ns", "bytes_per_s", "bytes")
_LAUNCH = {
    "ID": "id", "Process ID": "process", "Process Name": "program", "Host Name": "host",
    "Context": "context", "Stream": "stream", "Block Size": "block", "Grid Size": "grid",
    "Device": "device", "CC": "compute_capability",
}  # fmt: skip
_NAME, _METRIC, _UNIT, _VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"

# What the tool says instead of metrics: pattern, what it means, what to do.
_REFUSALS = (
    (
        "ERR_NVGPUCTRPERM",
        "the driver gives this user no access to the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "run ncu as root, or have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0; in "
        "a container also add the capability SYS_ADMIN",
    ),
    (
        "failed to connect to the CUDA driver",
        "ncu found no CUDA driver",
        "run it on a machine with a card; in a container give it the cards",
    ),
    (
        "No kernels were profiled",
        "no kernel was profiled",
        "see whether the script launches one whose name --kernel-name matches, and more of them "
        "than --launch-skip leaves out",
    ),
)

_Row = list[str]


def parse_ncu(text: str) -> Extract:
    """Metrics of kernels by Nsight Compute's command line, one for each profiled launch.

    `launches`: list of `kernel` (its name), `id`, `process`, `program`, `host`, `context`,
    `stream`, `block`, `grid` (as printed), `device`, `compute_capability`; `figures`:
    `duration_ns`, `sm_percent`, `tensor_percent`, `memory_percent`, `dram_percent`,
    `dram_bytes_per_s`, `l1_hit_percent`, `l2_hit_percent`, `occupancy_achieved_percent`,
    `occupancy_theoretical_percent`, `registers_per_thread`, `shared_static_bytes`,
    `shared_dynamic_bytes` (a block's), `waves_per_sm`, null where it was not collected
    or is negative; `stalls`: {reason: cycles that a warp waited for each instruction that was
    issued}; and `metrics`:
    {name: {`value`, `unit`}} of all that is a number. Times are ns, sizes bytes, rates bytes/s,
    frequencies hz; other units as printed. Decimal prefixes: a Kbyte is 1000 bytes. `grouping`:
    what groups digits, seen from the whole text (`,` where nothing shows it). Means over launches
    are made by `servemap kernel`.

    Raises:
        ParseError: there is no such table; the tool's own refusal is in words.
    """
    lines = text.split("\n")
    cut = cut_line(text)
    head = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if head is None or (cut and head == len(lines) - 1):
        raise _refusal(text)
    heading = _cells(lines[head])
    skipped: list[Skipped] = []
    rows: list[tuple[int, _Row]] = []
    for number, line in enumerate(islice(lines, head + 1, None), start=head + 2):
        # What the program itself and the tool print stands between the lines.
        if not line.startswith(('"', ",")) and not line[:1].isdigit():
            continue
        if number == cut:
            skipped.append(Skipped(number, "the line has no end, so it may be cut"))
            continue
        cells = _cells(line)
        if len(cells) == len(heading):
            rows.append((number, cells))
        elif cells != heading:
            skipped.append(Skipped(number, "the line does not fit the table's heading"))
    found = list(_long(heading, rows) if _METRIC in heading else _wide(heading, rows))
    if not found:
        raise _refusal(text)
    mark = grouping_mark([value for _, metrics in found for _, _, value in metrics]) or ","
    launches = [_launch(facts, metrics, mark) for facts, metrics in found]
    return Extract({"launches": launches, "grouping": mark}, skipped)


_Metric = tuple[str, str, str]
"""Name, unit and value, as printed."""
_Facts = dict[str, str]


def _is_heading(line: str) -> bool:
    return _NAME in line and line.lstrip('"').startswith("ID") and _NAME in _cells(line)


def _cells(line: str) -> _Row:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _long(heading: _Row, rows: list[tuple[int, _Row]]) -> Iterator[tuple[_Facts, list[_Metric]]]:
    """Yield launches of which each metric has a line."""
    if not {_UNIT, _VALUE} <= set(heading):
        return
    launches: dict[tuple[str, ...], tuple[_Facts, list[_Metric]]] = {}
    own = [name for name in (*_LAUNCH, _NAME) if name in heading]
    for _, cells in rows:
        row = dict(zip(heading, cells, strict=True))
        key = tuple(row[name] for name in own)
        _, metrics = launches.setdefault(key, ({name: row[name] for name in own}, []))
        if row[_METRIC]:
            metrics.append((row[_METRIC], row[_UNIT], row[_VALUE]))
    yield from launches.values()


def _wide(heading: _Row, rows: list[tuple[int, _Row]]) -> Iterator[tuple[_Facts, list[_Metric]]]:
    """Yield launches of which each has a line; the first line holds units and no launch."""
    own = {name for name in (*_LAUNCH, _NAME) if name in heading}
    units = [""] * len(heading)
    for _, cells in rows:
        row = dict(zip(heading, cells, strict=True))
        if not row[_NAME]:
            units = cells
            continue
        facts = {name: row[name] for name in own}
        names = zip(heading, units, cells, strict=True)
        yield facts, [(name, unit, value) for name, unit, value in names if name not in own]


def _launch(facts: _Facts, metrics: list[_Metric], mark: str) -> dict[str, Any]:
    figures: dict[str, Number | None] = dict.fromkeys(_figures().values())
    stalls: dict[str, Number] = {}
    kept: dict[str, dict[str, Any]] = {}
    for name, unit, text in metrics:
        how = _unit(unit)
        value = kept_number(text.partition(" (")[0], how, mark)
        if value is None:
            continue
        possible = value >= 0
        own = how.suffix if how else None
        kept.setdefault(name, {"value": value, "unit": own or unit.strip() or None})
        figure = _figures().get((name, own if own in _SUFFIXES else None))
        if possible and figure is not None and figures[figure] is None:
            figures[figure] = value
        stall = _STALL.fullmatch(name)
        if possible and stall:
            stalls.setdefault((stall[1] or stall[2]).casefold().replace(" ", "_"), value)
    said = {key: facts.get(name) or None for name, key in _LAUNCH.items()}
    return {
        "kernel": facts[_NAME],
        **said,
        "figures": figures,
        "stalls": stalls,
        "metrics": kept,
    }


@cache
def _unit(spelling: str) -> Amount | None:
    """Return how a unit is kept; `Kbyte/block` are bytes."""
    spelling = spelling.strip()
    if spelling in _HERTZ:
        return Amount("hz", _HERTZ[spelling])
    amount, _, per = spelling.partition("/")
    if amount in _BYTES and per in ("", "block", "thread"):
        return Amount("bytes", _BYTES[amount])
    seconds = {"second": 1, "s": 1, "msecond": 1e3, "usecond": 1e6, "nsecond": 1e9}
    if amount in _BYTES and per in seconds:
        return Amount("bytes_per_s", _BYTES[amount] * seconds[per])
    return amount_of(spelling)


@cache
def _figures() -> dict[tuple[str, str | None], str]:
    """Return {(name, kind of unit): our key}."""
    text = files("servemap.parsers.profilers").joinpath("ncu.yaml").read_text(encoding="utf-8")
    table: dict[str, list[str]] = yaml.safe_load(text)
    return {
        (name, next((end for end in _SUFFIXES if key.endswith(f"_{end}")), None)): key
        for key, names in table.items()
        for name in names
    }


def _refusal(text: str) -> ParseError:
    for word, what, remedy in _REFUSALS:
        if word in text:
            return ParseError(what, "ncu", remedy)
    return foreign(
        "ncu", "table of a profiled kernel", "run ncu with --csv --page raw, or --page details"
    )
