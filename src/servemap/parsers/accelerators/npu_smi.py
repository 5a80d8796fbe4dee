"""npu-smi info: the table, and what -t prints of one NPU, a block a chip."""

import re
from typing import Any

from servemap.parsers.accelerators.boxes import read_boxes
from servemap.parsers.cells import headed, is_missing
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_BEGIN = re.compile(r"(?m)^\s{0,40}NPU ID\s{0,40}: {0,4}[0-9]")
_FIELD = re.compile(r"([A-Za-z][^:]{0,60}):(.{0,200})")
_PROCESS = re.compile(
    r"Process id: ?([0-9]{1,10})\s{1,40}Process name: ?(\S.{0,200}?)\s{1,40}"
    r"Process memory\(MB\): ?([0-9]{1,10})"
)
_NO_PROCESS = "No process in device."
_MIB = 1048576
# npu-smi writes MB for MiB.
_UNITS = {"(MB)": "(MiB)", "(MHZ)": "(MHz)"}


def parse_npu_smi(text: str) -> Extract:
    """The table that npu-smi info draws for Ascend NPUs, or the fields of npu-smi info -t.

    The table gives `tool_version`, `driver_version`, and lists, null where there is no such table:
    `npus`, one a chip: `npu`, `chip`, `name`, `health`, `bus_id`, `power_watts`,
    `temperature_celsius`, `aicore_percent`, `memory_used_bytes`, `memory_total_bytes`,
    `hbm_used_bytes`, `hbm_total_bytes`, and `phy_id` or `device`, whichever the tool has;
    `processes` {`npu`, `chip`, `pid`, `process_name`, `memory_used_bytes`}. npu-smi's MB are of
    1048576 bytes. The power of two chips in one module stands at the first; the other one's is
    null.

    -t common, usages, power, proc-mem and others of that form give `chips`, one a block: `npu`,
    `chip` (null for the `mcu`, and where the block is cut before it), and `fields` as printed with
    units: `aicore_usage_rate_percent`, `hbm_capacity_bytes`, `npu_real_time_power_watts`;
    `processes` as above, null where the text says nothing of them.

    Raises:
        ParseError: there is neither such a table, nor a block of a chip, nor a message of the tool.
    """
    if _BEGIN.search(text) is None:
        return read_boxes("npu-smi", text)
    chips: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    npu: int | None = None
    chip: dict[str, Any] | None = None
    before = 0
    for line, row in ended(text, skipped):
        if line != before + 1:
            chip = None
        before = line
        word = row.strip()
        process, field = _PROCESS.fullmatch(word), _FIELD.fullmatch(word)
        if process is None and word != _NO_PROCESS and (field is None or not field[2].strip()):
            skipped.append(Skipped(line, "no field of a chip"))
            continue
        name, cell = (field[1].strip(), field[2].strip()) if field and not process else ("", "")
        if name == "NPU ID":
            npu, chip = _index(cell), None
            continue
        if name == "Chip Count":
            continue
        if chip is None or (name == "Chip ID" and chip["chip"] is not None):
            chip = {"npu": npu, "chip": None, "fields": {}, "processes": None}
            chips.append(chip)
        if name == "Chip ID":
            chip["chip"] = _index(cell)
        elif name:
            chip["fields"].update([_field(name, cell)])
        else:
            chip["processes"] = chip["processes"] or []
            if process:
                chip["processes"].append({
                    "pid": int(process[1]),
                    "process_name": process[2],
                    "memory_used_bytes": int(process[3]) * _MIB,
                })  # fmt: skip
    if not chips:
        raise foreign("npu-smi info -t", "block of a chip below `NPU ID`")
    return Extract({"chips": chips}, skipped)


def _index(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"[0-9]{1,9}", cell) else None


def _field(name: str, cell: str) -> tuple[str, Any]:
    for printed, meant in _UNITS.items():
        name = name.replace(printed, meant)
    return headed(name, "" if is_missing(cell) else cell)
