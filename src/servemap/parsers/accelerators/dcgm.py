"""DCGM: dcgmi dmon, dcgmi discovery, dcgm-exporter, and series exported as csv."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from servemap.parsers.cells import Number, Remembered, key, number, scaled, unit, value
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.exposition import read_exposition
from servemap.parsers.frame import Extract, Notes, foreign
from servemap.parsers.records import Skipped

_PREFIX = re.compile(r"DCGM_FI_(?:DEV|PROF)_")
_HELP_UNIT = re.compile(r"\(in ([^)]+)\)")
# DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK and the codes behind each: dcgm_structs.h.
_BLANK_INT32 = 0x7FFFFFF0
_BLANK_INT64 = 0x7FFFFFFFFFFFFFF0
_BLANK_FP64 = 140737488355328


@cache
def _table() -> dict[str, Any]:
    file = files("servemap.parsers.accelerators").joinpath("dcgm.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def is_blank(found: Number | None) -> bool:
    """Return whether a value is one of DCGM's codes for none, not supported or not permitted."""
    if found is None:
        return True
    # A float near 2^63 has lost the last digits of the code.
    return (
        _BLANK_INT32 <= found < _BLANK_INT32 + 16
        or _BLANK_FP64 <= found < _BLANK_FP64 + 16
        or found >= _BLANK_INT64 - 512
    )


def _suspects(fields: dict[str, Any]) -> list[str]:
    """Take away the profiler's zeros of a busy device; return the names of these fields."""
    table = _table()
    for name in table["engine"]:
        if fields.get(name) == 0:
            break
    else:
        return []
    busy = [fields[name] for name in table["busy"]["fields"] if fields.get(name) is not None]
    if not busy or busy[0] < table["busy"]["least_percent"]:
        return []
    names = [name for name, found in fields.items() if name.endswith("_ratio") and found == 0]
    fields.update(dict.fromkeys(names))
    return names


def _contradictions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{"at": place, "fields": _suspects(row)} for place, row in enumerate(rows)]
    return [one for one in found if one["fields"]]


def _kept(name: str, spelling: str | None) -> tuple[str, Number]:
    """Return key and factor of a field with that unit; a ratio has none."""
    if spelling == "ratio":
        return f"{key(name)}_ratio", 1
    known = unit(spelling)
    if known is None or key(name).endswith(f"_{known.suffix}"):
        return key(name), known.factor if known else 1
    # PCIE_TX_BYTES are bytes/s: their unit is in the name only in part.
    named = key(name).removesuffix("_bytes" if known.suffix == "bytes_per_s" else "")
    return f"{named}_{known.suffix}", known.factor


@lru_cache(maxsize=4096)
def _exporter_field(metric: str, said: str) -> tuple[str, Number]:
    name = _PREFIX.sub("", metric)
    declared = next((row["unit"] for row in _table()["exporter"]
                     if re.search(row["match"], name)), None)  # fmt: skip
    in_help = _HELP_UNIT.search(said)
    spelling = _table()["help"].get(in_help[1]) if in_help else None
    return _kept(name, spelling or declared)


def parse_dcgm_exporter(text: str) -> Extract:
    """A scrape of dcgm-exporter: the fields of every GPU and MIG instance.

    `entities`: one each, `gpu`, `uuid`, `gpu_instance`, `pod`, `namespace`, `container`, `host`
    (null where the label is empty or absent), `labels` (the rest) and `fields`: DCGM's names
    without the prefix in lower case, with units: `sm_clock_mhz`, `power_usage_watts`,
    `gpu_util_percent`, `fb_used_bytes`, `gr_engine_active_ratio`, `pcie_tx_bytes_per_s`. DCGM's
    codes for a missing value (2147483632, 9223372036854775792, 140737488355328 and the next ones)
    are null. `entities` is null where the scrape has no series of DCGM. `contradictions`: `at`, the
    place of an entity (from 0) that says it is at least half busy while its profiler counts no
    activity, and `fields`: the profiler's zeros, which are null there.

    Raises:
        ParseError: there is no series at all, or none of DCGM among lines that are no series.
    """
    found = read_exposition(text)
    is_exporter = any(metric.startswith("DCGM_FI_") for metric, _, _ in found.series)
    if not found.series or (found.skipped and not is_exporter):
        raise foreign("dcgm-exporter", "series of DCGM")
    entities: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for metric, labels, amount in found.series:
        if not metric.startswith("DCGM_FI_"):
            continue
        own = {name: text for name, text in labels.items() if not _describes(name)}
        entity = entities.setdefault(tuple(sorted(own.items())), _entity(own))
        name, factor = _exporter_field(metric, found.help.get(metric, ""))
        entity["fields"][name] = None if is_blank(amount) else scaled(amount, factor)
    rows = list(entities.values())
    contradictions = _contradictions([row["fields"] for row in rows])
    return Extract({"entities": rows or None, "contradictions": contradictions}, found.skipped)


def _describes(label: str) -> bool:
    """Return whether a label describes the value rather than the entity."""
    return label in ("err_code", "err_msg", "DCGM_FI_DRIVER_VERSION")


_NAMES = {
    "gpu": "gpu", "UUID": "uuid", "GPU_I_ID": "gpu_instance", "pod": "pod",
    "namespace": "namespace", "container": "container", "Hostname": "host",
}  # fmt: skip


def _entity(labels: dict[str, str]) -> dict[str, Any]:
    named: dict[str, Any] = dict.fromkeys(_NAMES.values())
    named.update({_NAMES[label]: text or None for label, text in labels.items() if label in _NAMES})
    named["gpu"] = value(named["gpu"] or "")
    rest = {label: text for label, text in labels.items() if label not in _NAMES}
    return {**named, "labels": rest, "fields": {}}


_ENTITY = re.compile(r"([A-Za-z][A-Za-z-]*(?: [A-Za-z]+)?)[ -]([0-9]{1,6})\s+(\S.*)")


def parse_dcgmi_dmon(text: str) -> Extract:
    """Samples of dcgmi dmon: one row a tick and entity.

    `rows`: `tick` (from 0; a new one begins where an entity comes again), `entity` (`GPU`, `GPU-I`,
    `Switch`, ...), `id`, and the columns by the short names of the heading, in lower case with
    units: `gract_ratio`, `smact_ratio`, `drama_ratio`, `tmptr_celsius`, `power_watts`,
    `fbusd_bytes`, `pcitx_bytes_per_s`. `contradictions` are as in `dcgm-exporter`, `at` a
    row. The line of units below the heading is not used: it does not line up with the columns.

    Raises:
        ParseError: there is no heading line with `Entity`.
    """
    notes = Notes([], [])
    rows: list[dict[str, Any]] = []
    contradictions: list[dict[str, Any]] = []
    for _, row in _dmon_rows(numbered(text), notes, cut_line(text)):
        if fields := _suspects(row):
            contradictions.append({"at": len(rows), "fields": fields})
        rows.append(row)
    return Extract({"rows": rows, "contradictions": contradictions}, notes.skipped)


def dcgmi_dmon_rows(
    lines: Iterable[tuple[int, str]], notes: Notes
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the same rows of numbered lines, each with its line; ParseError likewise."""
    for line, row in _dmon_rows(lines, notes):
        _suspects(row)
        yield line, row


def _dmon_rows(
    lines: Iterable[tuple[int, str]], notes: Notes, unended: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    columns: list[tuple[str, Remembered[Number | None]]] | None = None
    skipped = notes.skipped
    tick, seen = 0, set[tuple[str, int]]()
    for line, row in lines:
        if columns is None or row.lstrip()[:1] in ("#", "I", "i"):
            words = row.lstrip().lstrip("#").split()
            if row.lstrip().startswith("#") and words and words[0].casefold() == "entity":
                columns = [_dmon_field(word) for word in words[1:]]
                continue
            if words and words[0].casefold() == "id" and columns is not None:
                continue
        match = _ENTITY.fullmatch(row.strip()) if len(row) < 2000 else None
        if match is None or columns is None:
            skipped.append(
                Skipped(line, "no row of an entity" if columns else "no heading before it")
            )
            continue
        cells = match[3].split()
        if len(cells) != len(columns):
            skipped.append(Skipped(line, f"{len(cells)} cells under {len(columns)} headings"))
            continue
        if line == unended:
            skipped.append(Skipped(line, "cut in the last cell"))
            cells[-1] = ""
        identity = (match[1], int(match[2]))
        if identity in seen:
            tick, seen = tick + 1, set()
        seen.add(identity)
        found: dict[str, Any] = {"tick": tick, "entity": identity[0], "id": identity[1]}
        found.update({name: read[cell] for (name, read), cell in zip(columns, cells, strict=True)})
        yield line, found
    if columns is None:
        raise foreign("dcgmi dmon", "heading line that begins with #Entity")


@lru_cache(maxsize=1024)
def _dmon_field(short: str) -> tuple[str, Remembered[Number | None]]:
    """Return key of a column, and how its cells are read."""
    spelling = next((spelling for spelling, names in _table()["dmon"].items()
                     if short.upper() in names), None)  # fmt: skip
    name, factor = _kept(short, spelling)

    def read(cell: str) -> Number | None:
        amount = number(cell)
        return None if is_blank(amount) else scaled(amount, factor)

    return name, Remembered(read)


_COUNT = re.compile(r"\s*([0-9]{1,6}) ([A-Za-z][A-Za-z -]{0,40}(?:\(s\))?) found\.?")
_CELL = re.compile(r"\|\s*([0-9]*)\s*\|\s*([^:|]{1,40}):\s*([^|]*?)\s*\|")


def parse_dcgmi_discovery(text: str) -> Extract:
    """The devices that dcgmi discovery -l finds, or why it finds none.

    `status`: `ok`, `hostengine-unreachable` or `failed`; `message`: the tool's own words where it
    is not ok. `found`: {kind as printed: count}. `gpus`: one each, `id` and what the table says:
    `name`, `pci_bus_id`, `device_uuid`; null where the tool failed. If rows are fewer than GPUs
    found, `skipped` says so.

    Raises:
        ParseError: there is neither a count of devices nor a message of an error.
    """
    found: dict[str, int] = {}
    gpus: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    status, message = "ok", None
    line = 1
    in_gpus = False
    for line, row in numbered(text):
        if count := _COUNT.fullmatch(row):
            found[count[2]] = int(count[1])
        elif row.lstrip().startswith("|") and "ID" in row and ":" not in row:
            in_gpus = "GPU ID" in row
        elif row.lstrip().startswith("|") and not in_gpus:
            continue
        elif cell := _CELL.fullmatch(row.strip()[:400]):
            if cell[1]:
                gpus.append({"id": int(cell[1][:9])})
            if gpus:
                gpus[-1][key(cell[2])] = cell[3] or None
        elif not re.fullmatch(r"[+|\s-]*", row):
            said = next((name for name, pattern in _table()["failures"].items()
                         if re.search(pattern, row[:300])), None)  # fmt: skip
            if said is None or row.lstrip().startswith("$"):
                skipped.append(Skipped(line, "no device and no message"))
            elif message is None or (status, said) == ("failed", "hostengine-unreachable"):
                status, message = said, message or row.strip()
    if not found and not gpus and message is None:
        raise foreign("dcgmi discovery -l", "count of GPUs found")
    expected = next((count for name, count in found.items() if name.startswith("GPU")), None)
    if expected is not None and len(gpus) < expected:
        skipped.append(Skipped(line, f"{expected} GPUs found, rows of {len(gpus)}: cut"))
    data = {"status": status, "message": message, "found": found,
            "gpus": gpus if status == "ok" else gpus or None}  # fmt: skip
    return Extract(data, skipped)


def parse_dcgm_csv(text: str) -> Extract:
    """Series of DCGM fields that were exported as csv with a column `timestamp`.

    `rows`: `t_ns` (epoch, from seconds, milliseconds or ISO 8601 with a zone) and the fields, named
    as in `dcgm-exporter`; so are the `contradictions`, `at` a row.

    Raises:
        ParseError: there is no heading line with `timestamp` and a field.
    """
    columns: list[tuple[str, Number]] | None = None
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    unended = cut_line(text)
    for line, row in numbered(text):
        cells = [cell.strip() for cell in row.split(",")]
        if cells[0].casefold() == "timestamp" and len(cells) > 1:
            columns = [_exporter_field(cell, "") for cell in cells[1:]]
            continue
        if columns is None or len(cells) != len(columns) + 1:
            skipped.append(Skipped(line, "no row of these columns"))
            continue
        if line == unended:
            skipped.append(Skipped(line, "cut in the last cell"))
            cells[-1] = ""
        t_ns = _epoch_ns(cells[0])
        if t_ns is None:
            skipped.append(Skipped(line, "no time that can be placed"))
            continue
        found: dict[str, Any] = {"t_ns": t_ns}
        for (name, factor), cell in zip(columns, cells[1:], strict=True):
            amount = number(cell)
            found[name] = None if is_blank(amount) else scaled(amount, factor)
        rows.append(found)
    if columns is None:
        raise foreign("a csv of DCGM fields", "heading line with timestamp")
    return Extract({"rows": rows, "contradictions": _contradictions(rows)}, skipped)


def _epoch_ns(cell: str) -> int | None:
    """Return a time as epoch nanoseconds: seconds or milliseconds by their size, or ISO 8601."""
    found = number(cell)
    if found is None and len(cell) < 40:
        try:
            moment = datetime.fromisoformat(cell.strip())
        except ValueError:
            return None
        # Without a zone it is anybody's local time.
        return None if moment.tzinfo is None else round(moment.timestamp() * 1e6) * 1000
    if found is None or not 1e9 <= found < 1e14:
        return None
    whole, _, fraction = cell.strip().partition(".")
    if found >= 1e11:
        return round(found * 1_000_000)
    return int(whole) * 1_000_000_000 + int((fraction + "000000000")[:9])
