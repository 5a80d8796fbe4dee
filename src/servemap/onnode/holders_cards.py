"""What accelerators hold and for whom, from the vendors' tools; parsers of what these print.

A card is `{"vendor", "card", "uuid", "used_bytes", "total_bytes"}`, a process on a card
`{"vendor", "card", "pid", "used_bytes", "name"}`; null is what the tool does not say. The forms:
`nvidia-smi --query-* --format=csv`, `rocm-smi --json`, the table of `ixsmi`.
"""

import json
import os
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from .probe import list_folder, read_int, run_tool

Rows = List[Dict[str, Any]]

MIB = 1 << 20
DRM_ROOT = "/sys/class/drm"
_AMOUNT = re.compile(r"(\d+)(?:\.\d+)?\s*(?:MiB)?")
_ROCM_PID = re.compile(r"PID(\d+)")
_TABLE_CARD = re.compile(r"\|\s*(\d+)\s+\S.*\|.*\|.*\|\s*")
_TABLE_MEMORY = re.compile(r"\|\s*(\d+)\s*MiB\s*/\s*(\d+)\s*MiB\s*\|")
_TABLE_PROCESS = re.compile(r"\|\s*(\d+)\s+(\d+)\s+(\S.*?)\s+(\d+)\s*(?:MiB)?\s*\|\s*")


def amount(text: str) -> Optional[int]:
    """Return the bytes of `2566 MiB`, or of `2566` where units are left out; None for no number."""
    match = _AMOUNT.fullmatch(text.strip())
    return None if match is None else int(match.group(1)) * MIB


def parse_csv(text: str, last: str) -> List[Dict[str, str]]:
    """Parse the CSV of `nvidia-smi --query-*` with its header into rows by column.

    Units are taken off the names of columns. What is too much in a row belongs to the column
    `last`, since names of processes hold commas.

    Raises:
        ValueError: the first line is no header that has the column `last`.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    names = [name.split("[")[0].strip() for name in lines[0].split(",")] if lines else []
    if last not in names:
        raise ValueError("no table but %r" % text.strip()[:200])
    before = names.index(last)
    after = len(names) - before - 1
    rows = []
    for line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= len(names):
            end = len(cells) - after
            cells[before:end] = [", ".join(cells[before:end])]
            rows.append(dict(zip(names, cells)))  # noqa: B905 - strict= is newer than 3.8
    return rows


def parse_nvidia_cards(text: str) -> Rows:
    """Parse `--query-gpu=index,uuid,memory.used,memory.total,name`. ValueError if it is none."""
    return [
        {
            "vendor": "nvidia",
            "card": row.get("index"),
            "uuid": row.get("uuid"),
            "used_bytes": amount(row.get("memory.used", "")),
            "total_bytes": amount(row.get("memory.total", "")),
        }
        for row in parse_csv(text, "name")
    ]


def parse_nvidia_apps(text: str) -> Rows:
    """Parse `--query-compute-apps=gpu_uuid,pid,used_memory,process_name`; `card` is the uuid.

    Rows without a pid, which a card gives that cannot list its processes, are left out.

    Raises:
        ValueError: it is none.
    """
    return [
        {
            "vendor": "nvidia",
            "card": row.get("gpu_uuid"),
            "pid": int(row["pid"]),
            "used_bytes": amount(row.get("used_gpu_memory", row.get("used_memory", ""))),
            "name": row["process_name"],
        }
        for row in parse_csv(text, "process_name")
        if row.get("pid", "").isdecimal()
    ]


def _rocm(text: str) -> Dict[str, Dict[str, Any]]:
    # Warnings may stand before the object.
    data = json.loads(text[text.find("{") :] if "{" in text else text)
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return {name: one for name, one in data.items() if isinstance(one, dict)}


def _bytes(value: Any) -> Optional[int]:
    text = str(value).strip()
    return int(text) if text.isdecimal() else None


def parse_rocm_cards(text: str) -> Rows:
    """Parse `rocm-smi --showmeminfo vram --json`. ValueError if it is no object."""
    return [
        {
            "vendor": "amd",
            "card": name[4:],
            "uuid": None,
            "used_bytes": _bytes(row.get("VRAM Total Used Memory (B)")),
            "total_bytes": _bytes(row.get("VRAM Total Memory (B)")),
        }
        for name, row in _rocm(text).items()
        if name.startswith("card")
    ]


def parse_rocm_pids(text: str) -> Rows:
    """Parse `rocm-smi --showpids --json`: `{"system": {"PID7": "NAME, CARDS, VRAM, ..."}}`.

    It counts the cards of a process and does not name them. Nothing at all is no process.

    Raises:
        ValueError: it is no object.
    """
    found: Rows = []
    for key, value in (_rocm(text).get("system", {}) if text.strip() else {}).items():
        match = _ROCM_PID.fullmatch(key)
        if match:
            cells = [cell.strip() for cell in str(value).rsplit(",", 4)]
            found.append(
                {
                    "vendor": "amd",
                    "card": None,
                    "pid": int(match.group(1)),
                    "used_bytes": _bytes(cells[2]) if len(cells) == 5 else None,
                    "name": cells[0],
                }
            )
    return found


def parse_ixsmi(text: str) -> Tuple[Rows, Rows]:
    """Parse the table of `ixsmi` into cards and processes. ValueError if it names no card."""
    cards: Rows = []
    processes: Rows = []
    index: Optional[str] = None
    upper, _title, lower = text.partition("Processes:")
    for line in upper.splitlines():
        card, memory = _TABLE_CARD.fullmatch(line), _TABLE_MEMORY.search(line)
        if memory and index is not None:
            used, total = (int(number) * MIB for number in memory.groups())
            cards.append(
                {
                    "vendor": "iluvatar",
                    "card": index,
                    "uuid": None,
                    "used_bytes": used,
                    "total_bytes": total,
                }
            )
            index = None
        elif card:
            index = card.group(1)
    for line in lower.splitlines():
        row = _TABLE_PROCESS.fullmatch(line)
        if row:
            number, pid, name, used_mib = row.groups()
            processes.append(
                {
                    "vendor": "iluvatar",
                    "card": number,
                    "pid": int(pid),
                    "used_bytes": int(used_mib) * MIB,
                    "name": name,
                }
            )
    if not cards:
        raise ValueError("no table but %r" % text.strip()[:200])
    return cards, processes


def _said(argv: List[str]) -> str:
    record = run_tool(argv)
    if record.get("code") != 0:
        said = record.get("error") or (record["stderr"] or record["stdout"]).strip()
        raise ValueError(said[:300] or "it exited with %d" % record["code"])
    return str(record["stdout"])


def nvidia() -> Tuple[Rows, Rows]:
    """Return cards and processes by nvidia-smi. ValueError says why they are not known."""
    cards = parse_nvidia_cards(
        _said(
            ["nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total,name", "--format=csv"]
        )
    )
    query = "--query-compute-apps=gpu_uuid,pid,used_memory,process_name"
    processes = parse_nvidia_apps(_said(["nvidia-smi", query, "--format=csv"]))
    index = {card["uuid"]: card["card"] for card in cards}
    for process in processes:
        process["card"] = index.get(process["card"], process["card"])
    return cards, processes


def amd() -> Tuple[Rows, Rows]:
    """Return cards and processes by rocm-smi. ValueError says why they are not known."""
    cards = parse_rocm_cards(_said(["rocm-smi", "--showmeminfo", "vram", "--json"]))
    return cards, parse_rocm_pids(_said(["rocm-smi", "--showpids", "--json"]))


def iluvatar() -> Tuple[Rows, Rows]:
    """Return cards and processes by ixsmi. ValueError says why they are not known."""
    return parse_ixsmi(_said(["ixsmi"]))


def amdgpu_cards() -> Rows:
    """Return the cards of the kernel's amdgpu driver, which counts their memory without a tool."""
    found = []
    for name in list_folder(DRM_ROOT):
        folder = os.path.join(DRM_ROOT, name, "device")
        if re.fullmatch(r"card\d+", name) and os.path.exists(folder + "/mem_info_vram_used"):
            found.append(
                {
                    "vendor": "amd",
                    "card": name[4:],
                    "uuid": None,
                    "used_bytes": read_int(folder + "/mem_info_vram_used"),
                    "total_bytes": read_int(folder + "/mem_info_vram_total"),
                }
            )
    return found


TOOLS: Tuple[Tuple[str, Callable[[], Tuple[Rows, Rows]]], ...] = (
    ("nvidia-smi", nvidia),
    ("rocm-smi", amd),
    ("ixsmi", iluvatar),
)


def cards() -> Dict[str, Any]:
    """Return `{"cards", "processes", "failed": {tool: reason}}`; absent tools are no failure."""
    found: Rows = []
    processes: Rows = []
    failed: Dict[str, str] = {}
    for tool, read in TOOLS:
        try:
            of_tool, on_cards = read()
        except (ValueError, RecursionError) as error:
            if "is not on PATH" not in str(error):
                failed[tool] = str(error)
            continue
        found += of_tool
        processes += on_cards
    if not any(card["vendor"] == "amd" for card in found):
        found += amdgpu_cards()
    return {"cards": found, "processes": processes, "failed": failed}
