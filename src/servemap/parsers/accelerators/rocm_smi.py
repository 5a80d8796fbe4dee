"""rocm-smi: JSON, csv, and its text."""

import re
from collections.abc import Iterator
from typing import Any

from servemap.parsers.accelerators.amd_fields import csv_cells, is_text, table
from servemap.parsers.cells import headed, is_missing, key
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.records import Skipped
from servemap.parsers.values import mapping

Block = dict[str, Any]

_ROCM_LINE = re.compile(r"GPU\[([0-9]{1,4})\]\s*:\s*([^:]{1,120}):\s*(.*)")


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
    columns: list[str] = []
    sensor: str | None = None
    unended = cut_line(text)
    for line, row in numbered(text):
        words = row.split()
        if line == unended:
            skipped.append(Skipped(line, "a line without its end"))
        elif words[0] in ("GPU", "Device") and "SCLK" in words:
            sensor, columns = _sensor(row) or "Temperature (C)", _columns(words)
        elif sensor and words[0].isdecimal() and (found := _concise(words, columns, sensor)):
            yield f"card{words[0][:9]}", found
        elif sensor and row.lstrip().startswith("("):
            sensor = _sensor(row) or sensor
        elif match := _ROCM_LINE.fullmatch(row.strip()):
            yield f"card{match[1]}", {match[2].strip(): match[3]}
        elif len(cells := csv_cells(row)) > 1 and cells[0].casefold() == "device":
            heading = cells
        elif heading and len(cells) == len(heading) and cells[0].startswith(("card", "system")):
            yield cells[0], dict(zip(heading[1:], cells[1:], strict=True))
        elif not re.fullmatch(r"[\s=]*(?:=[^=]*=)?[\s=]*", row[:200]):
            skipped.append(Skipped(line, "no row of a card"))


def _columns(words: list[str]) -> list[str]:
    """Return the last columns of rocm-smi's table, of one word a cell; they vary by version."""
    columns: list[str] = []
    for word in words[words.index("SCLK") :]:
        if word == "OD":
            columns[-1] += " OD"
        else:
            columns.append("GPU use (%)" if word == "GPU%" else word)
    return columns


def _sensor(row: str) -> str | None:
    """Return which temperature a heading of rocm-smi's table means."""
    if "Junction" in row or "Hotspot" in row:
        return "Temperature (Sensor junction) (C)"
    return "Temperature (Sensor edge) (C)" if "Edge" in row else None


def _concise(words: list[str], columns: list[str], sensor: str) -> dict[str, str] | None:
    """Return the fields of a row of rocm-smi's table; before SCLK a cell may have many words."""
    lead, tail = words[1 : -len(columns)], words[-len(columns) :]
    if len(lead) < 2 or not tail[-1].endswith(("%", "N/A")):
        return None
    found = dict(zip(columns, tail, strict=True))
    heat = next((word for word in lead if re.fullmatch(r"[0-9.]{1,8}°?[cC]", word)), None)
    power = next((word for word in lead if re.fullmatch(r"[0-9.]{1,8}W", word)), None)
    found[sensor] = heat or "N/A"
    found["Power (W)"] = power or "N/A"
    return found


def _fields(printed: dict[str, str]) -> Block:
    fields: Block = {}
    found: Any
    for name, cell in printed.items():
        if is_text(key(name)):
            named, found = key(name), None if is_missing(cell) else cell.strip()
        else:
            named, found = headed(name, cell)
        # `sclk clock level:` and `sclk clock level` say the same; the first is the plain number.
        fields.setdefault(named, found)
    return fields


def _card(printed: dict[str, str]) -> Block:
    common: Block = {}
    for name, spellings in table()["common"].items():
        held = [printed[each] for each in spellings if not is_missing(printed.get(each, ""))]
        common[name] = None
        if held and name == "name":
            common[name] = held[0].strip()
        elif held:
            spelled = next(each for each in spellings if not is_missing(printed.get(each, "")))
            found = headed(spelled, held[0])[1]
            common[name] = found if isinstance(found, int | float) else None
    return {**common, "fields": _fields(printed)}
