"""nvidia-smi -q: everything that the driver tells, as indented text."""

import re
from typing import Any

from servemap.parsers.accelerators.nvidia_fields import field, says_failure
from servemap.parsers.cells import key
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

Block = dict[str, Any]

# A longer line is none of nvidia-smi's.
_LONGEST = 2000
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_LISTS = ("mig_device", "processes")


def add(block: Block, name: str, item: Any) -> None:
    """Put an item under its name; the second of one name makes a list of them."""
    if name not in block:
        block[name] = item
    elif isinstance(block[name], list):
        block[name].append(item)
    else:
        block[name] = [block[name], item]


def parse_query(text: str) -> Extract:
    """All of nvidia-smi -q, or of one of its sections (-q -d): the blocks of each GPU.

    `driver_version`, `cuda_version`, `timestamp` (the node's local time as printed),
    `attached_gpus` (what the tool says, which may be more than the GPUs in the file) and `gpus`:
    one each, `id` (PCI address) and the blocks as printed in lower case with `_` and units:
    `fb_memory_usage` {`used_bytes`}, `utilization` {`gpu_percent`}, `temperature`,
    `gpu_power_readings`, `clocks`, `retired_pages`. `mig_device` and `processes` are lists. `error`
    is what nvidia-smi said instead of values, else null; then `gpus` is null if there are none.

    Raises:
        ParseError: there is neither a line `GPU PCI-ADDRESS` nor a message of nvidia-smi.
    """
    top: Block = {}
    gpus: list[Block] = []
    skipped: list[Skipped] = []
    error: str | None = None
    # Blocks that are open, each with the indent of its own line.
    stack: list[tuple[int, str, Block]] = [(-1, "", top)]
    unended = cut_line(text)
    for line, row in numbered(text):
        if says_failure(row):
            error = error or row.strip()
            continue
        if row.startswith("==="):
            continue
        if gpu := _GPU.fullmatch(row):
            gpus.append({"id": gpu[1]})
            stack = [(-1, "", top), (0, "gpu", gpus[-1])]
            continue
        printed, colon, cell = row.partition(":")
        indent = len(row) - len(row.lstrip())
        name = key(printed)
        if line == unended:
            skipped.append(Skipped(line, "a line without its end"))
            continue
        if len(row) > _LONGEST or not name or not (colon or (indent and gpus)):
            skipped.append(Skipped(line, "no field and no heading"))
            continue
        while stack[-1][0] >= indent and len(stack) > 1:
            stack.pop()
        _, block_name, block = stack[-1]
        if not colon:
            inner: Block = {}
            add(block, name, [inner] if name in _LISTS and name not in block else inner)
            stack.append((indent, name, inner))
        elif name == "processes":
            block[name] = [] if cell.strip() == "None" else None
        elif block_name == "processes":
            _add_process(block, printed, cell)
        else:
            add(block, *field(printed, cell, block_name))
    if not gpus and error is None:
        raise foreign("nvidia-smi -q", "line `GPU 00000000:01:00.0`")
    return Extract(whole(top, [_tidy(gpu) for gpu in gpus] or None, error), skipped)


def _add_process(block: Block, printed: str, cell: str) -> None:
    """Collect the fields of processes, which follow each other in one block."""
    processes = block.setdefault("list", [{}])
    name, found = field(printed, cell)
    if name in processes[-1]:
        processes.append({})
    processes[-1][name] = found


def _tidy(gpu: Block) -> Block:
    """Put the processes in their place: a list, null where the tool does not know them."""
    processes = gpu.get("processes")
    if isinstance(processes, list):
        gpu["processes"] = [
            process for group in processes if isinstance(group, dict)
            for process in group.get("list", [])
        ]  # fmt: skip
    return gpu


def whole(top: Block, gpus: list[Block] | None, error: str | None) -> Block:
    """Return the data of a query: facts of the whole machine and its GPUs."""
    attached = top.get("attached_gpus")
    return {
        "timestamp": top.get("timestamp"),
        "driver_version": top.get("driver_version"),
        "cuda_version": top.get("cuda_version"),
        "attached_gpus": attached if isinstance(attached, int) else None,
        "gpus": gpus,
        "error": error,
    }
