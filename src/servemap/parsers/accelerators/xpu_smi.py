"""xpu-smi: the table of version 2, discovery and stats, and dump as csv."""

import re
from typing import Any

from servemap.parsers.accelerators.boxes import read_boxes
from servemap.parsers.accelerators.nvidia_fields import says_failure
from servemap.parsers.cells import headed, is_missing, key, value
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

# Cards of several tiles have a value each: `Tile 0: 12, Tile 1: 5`, `Tile 0: 0, total: 0`.
_PART = r"(?:Tile [0-9]{1,3}|total): [^,;:]{0,40}"
_TILES = re.compile(rf"{_PART}(?:[,;] ?{_PART}){{0,63}}")
# Fields that hold digits and are no numbers.
_TEXT = ("uuid", "serial_number", "pci_bdf_address", "bdf_address", "device_name", "vendor_name")


def parse_xpu_smi(text: str) -> Extract:
    """Figures of Intel cards: xpu-smi's table, discovery, stats or dump.

    The table of xpu-smi 2 as `nvidia-smi-table`, with `level_zero_version`. discovery and stats
    give `devices`: one each, `device_id` and the fields as printed with units: `device_name`,
    `gpu_utilization_percent`, `gpu_power_watts`, `gpu_memory_used_bytes`; of a card of several
    tiles each is {`tile_0`: value}. dump gives `rows`, one a line: `timestamp` as printed,
    `deviceid`, and the columns in the same way.

    Raises:
        ParseError: there is neither such a table, nor a heading with DeviceId, nor a message.
    """
    if "XPU-SMI" in text:
        return read_boxes("xpu-smi", text)
    skipped: list[Skipped] = []
    devices: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    heading: list[str] = []
    error: str | None = None
    unended = cut_line(text)
    for line, row in numbered(text):
        if row.lstrip()[:1] in ("+", "|"):
            if row.endswith(("+", "|")):
                _read_box(row, devices)
            else:
                skipped.append(Skipped(line, "a line without its end"))
            continue
        cells = [cell.strip() for cell in row.split(",")]
        if "DeviceId" in cells and len(cells) > 2:
            heading = cells
        elif heading and len(cells) == len(heading):
            if line == unended:
                skipped.append(Skipped(line, "cut in the last cell"))
                cells[-1] = ""
            rows.append(dict(_field(name, cell) for name, cell in zip(heading, cells, strict=True)))
        elif says_failure(row):
            error = error or row.strip()
        else:
            skipped.append(Skipped(line, "no row of a device"))
    if not devices and not heading and error is None:
        raise foreign("xpu-smi", "table of it and no heading with DeviceId")
    data = {"devices": devices or None, "rows": rows if heading else None, "error": error}
    return Extract(data, skipped)


def _field(name: str, cell: str) -> tuple[str, Any]:
    if key(name) in _TEXT or key(name) == "timestamp":
        return key(name), None if is_missing(cell) else cell
    if _TILES.fullmatch(cell):
        parts = [part.partition(": ") for part in re.split(r"[,;] ?", cell)]
        values = {key(label): headed(name, value)[1] for label, _, value in parts}
        return headed(name, "")[0], values
    return headed(name, cell)


def _read_box(row: str, devices: list[dict[str, Any]]) -> None:
    """Take one line of the boxes of discovery (`NAME: VALUE`) or stats (`NAME | VALUE`)."""
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    if len(cells) != 2:
        return
    left, right = cells
    if left == "Device ID" and right != "Device Information":
        devices.append({"device_id": value(right)})
    elif left.isdecimal() or not left:
        if left:
            devices.append({"device_id": int(left[:9])})
        name, colon, cell = right.partition(":")
        if devices and colon and key(name):
            devices[-1].update([_field(name, cell.strip())])
    elif devices and left != "Device ID" and key(left):
        devices[-1].update([_field(left, right)])
