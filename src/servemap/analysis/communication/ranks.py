"""Ranks of NCCL beside the frozen facts: card, PCI bus, NUMA node, network devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from servemap.analysis.frozen import tool_data
from servemap.analysis.frozen_cards import frozen_cards, pci_address, pci_device
from servemap.parsers.values import integer, mapping, sequence, text


def rank_places(
    ranks: Sequence[Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the ranks with `gpu` (index of the vendor's tool), `numa_node` and `nics` with theirs.

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
    buses = [card.address for card in frozen_cards(facts)]
    index = buses.index(bus) if bus and bus in buses else None
    nics = mapping(facts.get("nics"))
    devices = {**mapping(nics.get("interfaces")), **mapping(nics.get("rdma"))}
    known = {name: mapping(device).get("numa_node") for name, device in devices.items()}
    return {
        "node": rank.get("node"),
        "rank": rank.get("rank"),
        "gpu": integer(rank.get("gpu")) if index is None else index,
        "bus_id": bus or rank.get("bus_id"),
        "numa_node": _numa(facts, bus, index),
        "nics": [
            {"name": str(name), "numa_node": known.get(str(name))}
            for name in sequence(rank.get("nics"))
        ],
    }


def _numa(facts: Mapping[str, Any], address: str | None, index: int | None) -> int | None:
    """Return a card's NUMA node as the kernel says, else as nvidia-smi does."""
    told = integer(pci_device(facts, address).get("numa_node"))
    if told is not None or index is None:
        return told
    topology = tool_data(facts, "nvidia-smi topo -m", "nvidia-smi-topo")
    return integer(mapping(topology.get("numa_node")).get(f"GPU{index}"))
