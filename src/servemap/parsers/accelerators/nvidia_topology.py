"""nvidia-smi topo and nvidia-smi nvlink: how the cards are connected."""

import re
from typing import Any

from servemap.parsers.accelerators.nvidia_fields import says_failure
from servemap.parsers.cells import (
    Number,
    is_missing,
    key,
    number,
    quantity,
    scaled,
    unit,
    value,
)
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

_DEVICE = re.compile(r"(?:GPU|NIC|mlx|hfi|bnxt|irdma|roce|ib|efa|rdma)[A-Za-z_]*[0-9][0-9A-Za-z_]*")
_LINK = re.compile(
    r"X|SYS|NODE|PHB|PXB|PIX|PXN|SOC|PSB|C2C|NV[0-9]{1,3}|N/A|OK|CNS|GNS|TNS|DR|NS|U"
)
_NIC_NAME = re.compile(r"\s*(NIC[0-9]+)\s*:\s*(\S+)")
_AFFINITY = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", re.IGNORECASE)


def parse_topo(text: str) -> Extract:
    """The matrix of nvidia-smi topo -m: how each pair of GPUs and NICs is connected.

    `links`: {device: {other device: `NV18`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`}}, without the
    diagonal; with -p2p what is printed there: `OK`, `NS`. `cpu_affinity` (list of CPUs as printed),
    `numa_node` and `gpu_numa_node` (numbers, or text where several are named): {GPU: value}.
    `nics`: {NIC0: name}. `error` is the message of a tool that has no topology to show, else null;
    then all else is null.

    Raises:
        ParseError: there is neither a heading line with devices nor a message of nvidia-smi.
    """
    devices: list[str] = []
    affinities: list[str] = []
    links: dict[str, dict[str, str]] = {}
    places: dict[str, list[str | None]] = {}
    nics: dict[str, str] = {}
    skipped: list[Skipped] = []
    error: str | None = None
    in_legend = False
    unended = cut_line(text)
    for line, row in numbered(text):
        words = row.split()
        if says_failure(row):
            error = error or row.strip()
        elif (match := _NIC_NAME.fullmatch(row)) and line != unended:
            nics[match[1]] = match[2]
        elif row.casefold().rstrip().endswith("legend:"):
            in_legend = True
        elif len(words) > 1 and words[0] in devices and _DEVICE.fullmatch(words[0]):
            reason = (
                "a line without its end"
                if line == unended
                else _read_row(row, devices, affinities, links, places)
            )
            if reason:
                skipped.append(Skipped(line, reason))
        elif _DEVICE.fullmatch(words[0]) and not any(map(_LINK.fullmatch, words[1:])):
            affinities = _AFFINITY.findall(row)
            devices = _AFFINITY.sub("", row).split()
        elif not (in_legend and (len(words) > 1 and words[1] == "=")):
            skipped.append(Skipped(line, "no row of the matrix"))
    if not devices and error is None:
        raise foreign("nvidia-smi topo -m", "heading line with GPU0")
    if not links:
        whole = {"links": None, "cpu_affinity": None, "numa_node": None, "gpu_numa_node": None}
        return Extract({**whole, "nics": None, "error": error}, skipped)

    def place(position: int) -> dict[str, Any]:
        return {name: _place(cells[position]) for name, cells in places.items()}

    data = {
        "links": links,
        "cpu_affinity": {name: cells[0] for name, cells in places.items()},
        "numa_node": place(1),
        "gpu_numa_node": place(2),
        "nics": nics,
        "error": error,
    }
    return Extract(data, skipped)


def _place(cell: str | None) -> Number | str | None:
    found = None if cell is None else number(cell)
    return cell if found is None else found


def _read_row(
    row: str,
    devices: list[str],
    affinities: list[str],
    links: dict[str, dict[str, str]],
    places: dict[str, list[str | None]],
) -> str | None:
    """Put one row of the matrix into `links` and `places`; return why it cannot be read."""
    tabs = [cell.strip() for cell in row.split("\t")]
    words = tabs if len(tabs) > len(devices) else row.split()
    label, cells, rest = words[0], words[1 : 1 + len(devices)], words[1 + len(devices) :]
    if len(cells) < len(devices) or not all(map(_LINK.fullmatch, cells)):
        return f"not {len(devices)} links"
    links[label] = {
        other: link for other, link in zip(devices, cells, strict=True) if link not in ("X", "N/A")
    }
    if not label.startswith("GPU"):
        return None
    # nvidia-smi puts an empty cell before the last one.
    given = [cell for cell in rest if cell]
    if len(given) == len(affinities):
        by_name = dict(zip([name.casefold() for name in affinities], given, strict=True))
    elif words is tabs:
        by_name = dict(zip([name.casefold() for name in affinities[:2]], rest, strict=False))
    else:
        by_name = {}
    named = [by_name.get(name) for name in ("cpu affinity", "numa affinity", "gpu numa id")]
    places[label] = [None if cell is None or is_missing(cell) else cell for cell in named]
    return None if len(given) == len(affinities) else "affinities cannot be told apart"


_GPU = re.compile(r"GPU ([0-9]+): (.*?)(?: \(UUID: ([^)\s]+)\))?")
_NVLINK = re.compile(r"\s*Link ([0-9]{1,4})[:,]\s*(?:([A-Za-z][^:]{0,60}):\s*)?(\S.*)")
_FLAGS = {"true": True, "false": False}


def parse_nvlink(text: str) -> Extract:
    """What nvidia-smi nvlink tells of every link: -s, -c, -e or -gt.

    `gpus`: one each, `index`, `name`, `uuid`, `links` ({link: {...}}; null where the card has none
    or the tool could not ask) and `message` (what it said instead, else null). With -s a link has
    `active` and `bytes_per_s`, one direction, null while it is inactive; with the others what is
    printed, named so, with units: `p2p_is_supported`, `replay_errors`, `data_tx_bytes`.

    Raises:
        ParseError: there is no line `GPU 0: ...` and no message of nvidia-smi.
    """
    gpus: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    error: str | None = None
    unended = cut_line(text)
    for line, row in numbered(text):
        if len(row) > 500:
            skipped.append(Skipped(line, "no link of a GPU"))
        elif (gpu := _GPU.fullmatch(row)) and (gpu[3] or line != unended):
            gpus.append({"index": int(gpu[1][:9]), "name": gpu[2], "uuid": gpu[3], "links": None,
                         "message": None})  # fmt: skip
        elif line == unended and not _is_whole(row):
            skipped.append(Skipped(line, "a line without its end"))
        elif (link := _NVLINK.fullmatch(row)) and gpus:
            links = gpus[-1]["links"] = gpus[-1]["links"] or {}
            links.setdefault(link[1], {}).update(_link_state(link[2], link[3]))
        elif says_failure(row):
            if gpus:
                gpus[-1]["message"] = gpus[-1]["message"] or row.strip()
            else:
                error = error or row.strip()
        else:
            skipped.append(Skipped(line, "no link of a GPU"))
    if not gpus and error is None:
        raise foreign("nvidia-smi nvlink", "line such as `GPU 0: NAME (UUID: ...)`")
    return Extract({"gpus": gpus or None, "error": error}, skipped)


def _is_whole(row: str) -> bool:
    """Return whether a line is known to be whole: it ends with a unit."""
    found = quantity(row.rpartition(":")[2])
    return found is not None and unit(found.unit) is not None


def _link_state(name: str | None, cell: str) -> dict[str, Any]:
    found = quantity(cell)
    kept = unit(found.unit) if found else None
    if name is None:
        speed = scaled(found.value, kept.factor) if found and kept else None
        return {"active": found is not None, "bytes_per_s": speed}
    if found and kept:
        return {f"{key(name)}_{kept.suffix}": scaled(found.value, kept.factor)}
    return {key(name): _FLAGS.get(cell.strip().casefold(), value(cell))}
