"""rocm-smi and amd-smi: JSON, csv, and the text of amd-smi."""

import csv
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from servemap.model.errors import ParseError
from servemap.parsers.cells import headed, is_missing, key, quantity, scaled, unit, value
from servemap.parsers.clean import numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.records import Skipped
from servemap.parsers.values import mapping

Block = dict[str, Any]

_ROCM_LINE = re.compile(r"GPU\[([0-9]{1,4})\]\s*:\s*([^:]{1,120}):\s*(.*)")


@cache
def _table() -> Block:
    file = files("servemap.parsers.accelerators").joinpath("amd.yaml")
    content: Block = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@lru_cache(maxsize=4096)
def _is_text(name: str) -> bool:
    return re.search(_table()["text"], name) is not None


def parse_rocm_smi(text: str) -> Extract:
    """All that rocm-smi tells of each card, as JSON, csv or text.

    `cards`: {`card0`: {...}}, each with figures that have had several names (null where the file
    has none): `name`, `power_watts`, `use_percent`, `memory_used_bytes`, `memory_total_bytes`,
    `temperature_edge_celsius`, `temperature_junction_celsius`, `temperature_memory_celsius`; and
    `fields`, everything as printed with units in the keys: `sclk_clock_speed_mhz`,
    `voltage_volts`. `system`: {field: value}. Of several samples in one csv `cards`
    has the last; `rows` has all, one a line, null for JSON.

    Raises:
        ParseError: there is no card.
    """
    cards: dict[str, dict[str, str]] = {}
    system: dict[str, str] = {}
    rows: list[Block] | None = None
    skipped: list[Skipped] = []
    if text.lstrip()[:1] == "{" or "\n{" in text:
        document, skipped = read_document("rocm-smi", text)
        for name, fields in mapping(document).items():
            printed = {field: str(cell) for field, cell in mapping(fields).items()
                       if not isinstance(cell, dict | list)}  # fmt: skip
            if name.startswith("card"):
                cards[name] = printed
            elif name == "system":
                system = printed
    else:
        rows = []
        for name, fields in _rocm_lines(text, skipped):
            cards.setdefault(name, {}).update(fields)
            rows.append({"card": name, **_fields(fields)})
    if not cards:
        raise foreign("rocm-smi", "card")
    data = {
        "cards": {name: _card(printed) for name, printed in cards.items()},
        "system": _fields(system),
        "rows": rows,
    }
    return Extract(data, skipped)


def _rocm_lines(text: str, skipped: list[Skipped]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the fields of each csv row, and of each line `GPU[0] : NAME: VALUE`."""
    heading: list[str] = []
    for line, row in numbered(text):
        if match := _ROCM_LINE.fullmatch(row.strip()):
            yield f"card{match[1]}", {match[2].strip(): match[3]}
            continue
        cells = _csv_cells(row)
        if len(cells) > 1 and cells[0].casefold() == "device":
            heading = cells
        elif heading and len(cells) == len(heading) and cells[0].startswith(("card", "system")):
            yield cells[0], dict(zip(heading[1:], cells[1:], strict=True))
        elif not re.fullmatch(r"[\s=]*(?:=[^=]*=)?[\s=]*", row[:200]):
            skipped.append(Skipped(line, "no row of a card"))


def _csv_cells(row: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([row]), [])]
    except csv.Error:
        return []


def _fields(printed: dict[str, str]) -> Block:
    fields: Block = {}
    found: Any
    for name, cell in printed.items():
        if _is_text(key(name)):
            named, found = key(name), None if is_missing(cell) else cell.strip()
        else:
            named, found = headed(name, cell)
        # `sclk clock level:` and `sclk clock level` say the same; the first is the plain number.
        fields.setdefault(named, found)
    return fields


def _card(printed: dict[str, str]) -> Block:
    common: Block = {}
    for name, spellings in _table()["common"].items():
        held = [printed[each] for each in spellings if not is_missing(printed.get(each, ""))]
        common[name] = None
        if held and name == "name":
            common[name] = held[0].strip()
        elif held:
            spelled = next(each for each in spellings if not is_missing(printed.get(each, "")))
            found = headed(spelled, held[0])[1]
            common[name] = found if isinstance(found, int | float) else None
    return {**common, "fields": _fields(printed)}


def parse_amd_smi(text: str) -> Extract:
    """All that amd-smi static, metric or list tells, as text, JSON or csv.

    `gpus` and `cpus`: one each, `gpu` or `cpu` (its number) and the blocks as printed in lower
    case, with units: `limit` {`max_power_watts`}, `vram` {`size_bytes`}, `usage`
    {`gfx_activity_percent`}. amd-smi's KB and MB are of 1024 and 1048576 bytes. A name that comes
    again in a block makes a list. csv gives one entry a row.

    Raises:
        ParseError: there is neither a GPU nor a CPU.
    """
    first = next((row for _, row in numbered(text) if row.strip()[:1] in ("{", "[")), None)
    if first is not None and not re.search(r"(?m)^(?:GPU|CPU): [0-9]", text):
        document, skipped = read_document("amd-smi", text)
        entries = _amd_json(document)
    elif re.search(r"(?mi)^\s*(?:[a-z_]+,)?gpu,", text):
        entries, skipped = _amd_csv(text)
    else:
        entries, skipped = _amd_text(text)
    gpus = [entry for entry in entries if "gpu" in entry]
    cpus = [entry for entry in entries if "cpu" in entry and "gpu" not in entry]
    if not gpus and not cpus:
        raise foreign("amd-smi", "GPU and no CPU")
    return Extract({"gpus": gpus, "cpus": cpus}, skipped)


def _amd_field(name: str, cell: str) -> tuple[str, Any]:
    """Return key and value of a field; a unit that is not in the cell is that of the name."""
    named = key(name)
    if _is_text(named):
        return named, None if is_missing(cell) else cell.strip()
    found = quantity(cell)
    spelled = (found.unit if found else None) or _declared(named)
    kept = unit(_table()["binary"].get(spelled, spelled))
    if kept is None or not (found or is_missing(cell)):
        return named, value(cell)
    return f"{named}_{kept.suffix}", scaled(found.value, kept.factor) if found else None


def _amd_text(text: str) -> tuple[list[Block], list[Skipped]]:
    entries: list[Block] = []
    skipped: list[Skipped] = []
    stack: list[tuple[int, Block]] = []
    for line, row in numbered(text):
        name, colon, cell = row.partition(":")
        indent = len(row) - len(row.lstrip())
        if indent == 0 and colon and name in ("GPU", "CPU") and cell.strip().isdecimal():
            entries.append({name.casefold(): int(cell.strip()[:9])})
            stack = [(0, entries[-1])]
            continue
        while len(stack) > 1 and stack[-1][0] >= indent:
            stack.pop()
        if not stack or not colon or indent == 0 or not key(name) or len(row) > 1000:
            skipped.append(Skipped(line, "no field of a GPU or CPU"))
            continue
        block = stack[-1][1]
        if cell.strip():
            _add(block, *_amd_field(name, cell))
        else:
            inner: Block = {}
            _add(block, key(name), inner)
            stack.append((indent, inner))
    return entries, skipped


def _add(block: Block, name: str, item: Any) -> None:
    """Put an item under its name; one that comes again makes a list of them."""
    if name not in block:
        block[name] = item
    elif isinstance(block[name], list):
        block[name].append(item)
    else:
        block[name] = [block[name], item]


def _amd_csv(text: str) -> tuple[list[Block], list[Skipped]]:
    heading: list[str] = []
    entries: list[Block] = []
    skipped: list[Skipped] = []
    for line, row in numbered(text):
        cells = _csv_cells(row)
        if "gpu" in cells[:3] and len(cells) > 1:
            heading = cells
        elif not heading or len(cells) != len(heading):
            skipped.append(Skipped(line, f"{len(cells)} cells under {len(heading)} headings"))
        else:
            pairs = zip(heading, cells, strict=True)
            entries.append(dict(_amd_field(name, cell) for name, cell in pairs))
    return entries, skipped


@lru_cache(maxsize=4096)
def _declared(named: str) -> str | None:
    for spelling, pattern in _table()["units"].items():
        if re.search(pattern, named):
            return str(spelling)
    return None


def _amd_json(document: Any) -> list[Block]:
    if isinstance(document, dict):
        parts = [document.get("gpu_data"), document.get("cpu_data")]
        document = [entry for part in parts if isinstance(part, list) for entry in part]
    if not isinstance(document, list):
        raise ParseError("this is no list of GPUs", "amd-smi", "give amd-smi's JSON output")
    return [_amd_block(entry) for entry in document if isinstance(entry, dict)]


def _amd_block(block: Block, depth: int = 0) -> Block:
    """Return a block with units in the keys of {"value": 1, "unit": "W"} and of text cells."""
    found: Block = {}
    for name, item in block.items():
        if isinstance(item, dict) and set(item) == {"value", "unit"}:
            found.update([_amd_field(name, f"{item['value']} {item['unit']}")])
        elif isinstance(item, dict) and depth < 20:
            found[key(name)] = _amd_block(item, depth + 1)
        elif isinstance(item, list) and depth < 20:
            found[key(name)] = [
                _amd_block(each, depth + 1) if isinstance(each, dict) else each for each in item
            ]
        elif isinstance(item, str):
            found.update([_amd_field(name, item)])
        else:
            found[key(name)] = item
    return found
