"""amd-smi: text, JSON and csv."""

import re
from functools import lru_cache
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.accelerators.amd_fields import csv_cells, is_text, table
from servemap.parsers.accelerators.boxes import read_boxes
from servemap.parsers.cells import Number, is_missing, key, quantity, scaled, unit, value
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.records import Skipped

Block = dict[str, Any]

_BEGUN_LIST = re.compile(r" +[A-Z][A-Z0-9_ ]{0,60}: \[[^\]]{0,600},")
_AFTER_SLASH = re.compile(r"(?<=[0-9A])/ +(?=[0-9N])")


def parse_amd_smi(text: str) -> Extract:
    """All that amd-smi static, metric, list or monitor tells, as text, JSON or csv.

    `gpus` and `cpus`: one each, `gpu` or `cpu` (its number) and the blocks as printed in lower
    case, with units: `limit` {`max_power_watts`}, `vram` {`size_bytes`}, `usage`
    {`gfx_activity_percent`}. amd-smi's KB and MB are of 1024 and 1048576 bytes. A name that comes
    again in a block makes a list. csv and monitor give one entry a row. The table that amd-smi
    draws without options gives `gpus` as `nvidia-smi-table` does, with `hip_id` and
    `partition_mode`; and `processes`, `tool_version`, `driver_version`, `rocm_version`.

    Raises:
        ParseError: there is neither a GPU nor a CPU.
    """
    if re.search(r"(?m)^\s*\| AMD-SMI ", text):
        drawn = read_boxes("amd-smi", text)
        return Extract({**drawn.data, "gpus": drawn.data["gpus"] or [], "cpus": []}, drawn.skipped)
    first = next((row for _, row in numbered(text) if row.strip()[:1] in ("{", "[")), None)
    if first is not None and not re.search(r"(?m)^(?:GPU|CPU): [0-9]", text):
        document, skipped = read_document("amd-smi", text)
        entries = _amd_json(document)
    elif re.search(r"(?mi)^\s*(?:[a-z_]+,)?gpu,", text):
        entries, skipped = _amd_csv(text)
    elif re.search(r"(?m)^(?:TIMESTAMP +)?GPU(?: +[A-Z][A-Z_]*){2,}", text):
        entries, skipped = _amd_monitor(text)
    else:
        entries, skipped = _amd_text(text)
    gpus = [entry for entry in entries if "gpu" in entry]
    cpus = [entry for entry in entries if "cpu" in entry and "gpu" not in entry]
    if not gpus and not cpus:
        raise foreign("amd-smi", "GPU and no CPU")
    return Extract({"gpus": gpus, "cpus": cpus}, skipped)


def _amd_field(name: str, cell: str) -> tuple[str, Any]:
    """Return key and value of a field; a unit that is not in the cell is that of the name."""
    if (cells := _listed(cell)) and not is_text(key(name)):
        return _series(name, cells)
    return _scalar(name, cell)


# Cells of telemetry repeat.
@lru_cache(maxsize=65536)
def _scalar(name: str, cell: str) -> tuple[str, Number | str | None]:
    named = key(name)
    if is_text(named):
        return named, None if is_missing(cell) else cell.strip()
    found = quantity(cell)
    spelled = (found.unit if found else None) or ("%" if name.endswith("%") else _declared(named))
    kept = unit(table()["binary"].get(spelled, spelled))
    if kept is None or not (found or is_missing(cell)):
        return named, value(cell)
    return f"{named}_{kept.suffix}", scaled(found.value, kept.factor) if found else None


def _series(name: str, cells: list[str]) -> tuple[str, list[Any]]:
    """Return key and values of a list, whose cells are fields of one name."""
    fields = [_amd_field(name, each) for each in cells]
    labels = {label for label, found in fields if found is not None} or {fields[0][0]}
    return labels.pop() if len(labels) == 1 else key(name), [found for _, found in fields]


def _listed(cell: str) -> list[str]:
    """Return the cells of a list such as `[0 %, N/A]`, none for any other text."""
    word = cell.strip()
    return (
        word[1:-1].split(",") if word.startswith("[") and word.endswith("]") and "," in word else []
    )


def _amd_text(text: str) -> tuple[list[Block], list[Skipped]]:
    entries: list[Block] = []
    skipped: list[Skipped] = []
    stack: list[tuple[int, Block]] = []
    begun = ""
    unended = cut_line(text)
    for line, row in numbered(text):
        if begun and line != unended and ":" not in row:
            row = f"{begun} {row.strip()}"
        # A long list goes on in the next lines.
        begun = row if _BEGUN_LIST.fullmatch(row) else ""
        if begun and line != unended:
            continue
        name, colon, cell = row.partition(":")
        indent = len(row) - len(row.lstrip())
        if indent == 0 and colon and name in ("GPU", "CPU") and cell.strip().isdecimal():
            entries.append({name.casefold(): int(cell.strip()[:9])})
            stack = [(0, entries[-1])]
            continue
        while len(stack) > 1 and stack[-1][0] >= indent:
            stack.pop()
        if line == unended:
            skipped.append(Skipped(line, "a line without its end"))
            continue
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


def _amd_monitor(text: str) -> tuple[list[Block], list[Skipped]]:
    """Read the table of amd-smi monitor, whose cells are a number and a unit."""
    heading: list[str] = []
    entries: list[Block] = []
    skipped: list[Skipped] = []
    unended = cut_line(text)
    for line, row in numbered(text):
        words = _AFTER_SLASH.sub("/", row).split()
        if "GPU" in words[:2] and len(words) > 2 and not any(map(str.isdecimal, words)):
            heading = words
            continue
        cells: list[str] = []
        for word in words:
            if cells and unit(table()["binary"].get(word, word)) and not quantity(word):
                cells[-1] += f" {word}"
            else:
                cells.append(word)
        if len(cells) != len(heading) or not heading:
            skipped.append(Skipped(line, f"{len(cells)} cells under {len(heading)} headings"))
        else:
            if line == unended:
                skipped.append(Skipped(line, "cut in the last cell"))
                cells[-1] = ""
            pairs = zip(heading, cells, strict=True)
            entry = dict(field for pair in pairs for field in _monitor_fields(*pair))
            _take(entry, line, entries, skipped)
    return entries, skipped


def _take(entry: Block, line: int, entries: list[Block], skipped: list[Skipped]) -> None:
    """Keep the entry of a row if it names its GPU by number; another tool's row does not."""
    if isinstance(entry.get("gpu"), int):
        entries.append(entry)
    else:
        skipped.append(Skipped(line, "no row of a GPU"))


def _monitor_fields(name: str, cell: str) -> list[tuple[str, Any]]:
    """Return the field of a cell; the two of one such as VRAM_USAGE, `0.3/192.0 GB`."""
    used, slash, total = cell.partition("/")
    spelled = total.partition(" ")[2]
    if not name.endswith("_USAGE") or not (spelled or is_missing(cell)):
        return [_amd_field(name, cell)]
    pool = name.removesuffix("_USAGE")
    if not slash or not spelled:
        return [(f"{key(pool)}_{end}_bytes", None) for end in ("used", "total")]
    return [
        _amd_field(f"{pool}_USED", f"{used} {spelled}"),
        _amd_field(f"{pool}_TOTAL", total),
    ]


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
    unended = cut_line(text)
    for line, row in numbered(text):
        cells = csv_cells(row)
        if "gpu" in cells[:3] and len(cells) > 1:
            heading = cells
        elif not heading or len(cells) != len(heading):
            skipped.append(Skipped(line, f"{len(cells)} cells under {len(heading)} headings"))
        else:
            if line == unended:
                skipped.append(Skipped(line, "cut in the last cell"))
                cells[-1] = ""
            pairs = zip(heading, cells, strict=True)
            _take(dict(_amd_field(name, cell) for name, cell in pairs), line, entries, skipped)
    return entries, skipped


@lru_cache(maxsize=4096)
def _declared(named: str) -> str | None:
    for spelling, pattern in table()["units"].items():
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


def _cell(item: Any) -> str | None:
    """Return an item of a list as text prints it, None for one that is no field."""
    if isinstance(item, dict) and set(item) == {"value", "unit"}:
        return f"{item['value']} {item['unit']}"
    return item if isinstance(item, str) else None


def _amd_block(block: Block, depth: int = 0) -> Block:
    """Return a block with units in the keys of {"value": 1, "unit": "W"} and of text cells."""
    found: Block = {}
    for name, item in block.items():
        if isinstance(item, dict) and set(item) == {"value"}:
            # Where the document is cut: a number without its unit.
            found[key(name)] = None
        elif isinstance(item, dict) and set(item) == {"value", "unit"}:
            found.update([_amd_field(name, f"{item['value']} {item['unit']}")])
        elif isinstance(item, dict) and depth < 20:
            found[key(name)] = _amd_block(item, depth + 1)
        elif isinstance(item, list) and item and None not in (cells := [*map(_cell, item)]):
            found.update([_series(name, [cell for cell in cells if cell is not None])])
        elif isinstance(item, list) and depth < 20:
            found[key(name)] = [
                _amd_block(each, depth + 1) if isinstance(each, dict) else each for each in item
            ]
        elif isinstance(item, str):
            found.update([_amd_field(name, item)])
        else:
            found[key(name)] = item
    return found
