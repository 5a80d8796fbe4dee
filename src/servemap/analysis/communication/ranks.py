"""Ranks of NCCL beside the frozen facts: card, PCI bus, NUMA node, network devices."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.kinds import parse
from servemap.parsers.values import integer, mapping, sequence, text

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.?[0-9a-f]?")
_SHORT = re.compile(r"[0-9a-f]{1,16}")
_QUERY, _TOPOLOGY = "nvidia-smi -q", "nvidia-smi topo -m"


def rank_places(
    ranks: Sequence[Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the ranks with `gpu` (index of nvidia-smi), `numa_node` and `nics` with theirs.

    Each row is {node, rank, gpu, bus_id, numa_node, nics: [{name, numa_node}]}; what the facts do
    not say is None. The index of the log is that among the cards a process sees, so the facts' one
    stands in its place where the bus is known there.

    Args:
        ranks: as `server.gates.transport_paths.Connected` has them.
        facts: frozen facts by node.
    """
    return [_place(rank, mapping(facts.get(str(rank.get("node"))))) for rank in ranks]


def _place(rank: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    bus = pci_address(text(rank.get("bus_id")))
    index = _buses(facts).index(bus) if bus and bus in _buses(facts) else None
    devices = mapping(mapping(facts.get("nics")).get("rdma"))
    known = {name: mapping(device).get("numa_node") for name, device in devices.items()}
    return {
        "node": rank.get("node"),
        "rank": rank.get("rank"),
        "gpu": integer(rank.get("gpu")) if index is None else index,
        "bus_id": bus or rank.get("bus_id"),
        "numa_node": None if index is None else _numa(facts, index),
        "nics": [
            {"name": str(name), "numa_node": known.get(str(name))}
            for name in sequence(rank.get("nics"))
        ],
    }


def pci_address(bus_id: str | None) -> str | None:
    """Return a card's PCI address as DOMAIN:BUS:DEVICE, from any way of writing it.

    NCCL writes the digits of DOMAIN:BUS:DEVICE.FUNCTION as one number without leading zeros
    (`busIdToInt64` of src/misc/utils.cc): 17000 is 0000:17:00.0.
    """
    if bus_id is None:
        return None
    plain = bus_id.lower().removeprefix("0x")
    if found := _PCI.fullmatch(plain):
        return f"{int(found[1] or '0', 16):04x}:{found[2]}:{found[3]}"
    if not _SHORT.fullmatch(plain):
        return None
    value = int(plain, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}"


def _buses(facts: Mapping[str, Any]) -> list[str | None]:
    """Return the addresses of a node's cards in the order of nvidia-smi."""
    gpus = _said(facts, _QUERY, "nvidia-smi-q").get("gpus")
    return [pci_address(text(mapping(gpu).get("id"))) for gpu in sequence(gpus)]


def _numa(facts: Mapping[str, Any], index: int) -> int | None:
    numa = mapping(_said(facts, _TOPOLOGY, "nvidia-smi-topo").get("numa_node"))
    return integer(numa.get(f"GPU{index}"))


def _said(facts: Mapping[str, Any], tool: str, kind: str) -> dict[str, Any]:
    """Return what a tool said when the facts were frozen; empty where nothing can be read."""
    record = mapping(mapping(mapping(facts.get("accelerators")).get("tools")).get(tool))
    try:
        return mapping(parse(kind, (text(record.get("stdout")) or "").encode()).data)
    except ParseError:
        return {}
