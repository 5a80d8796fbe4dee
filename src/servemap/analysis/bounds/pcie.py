"""PCIe links of cards and network devices, from `nvidia-smi -q` and the kernel's frozen facts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from servemap.analysis.frozen import tool_data
from servemap.analysis.frozen_cards import frozen_cards, pci_address, pci_device
from servemap.parsers.values import integer, mapping, sequence, text

# Bytes/s of a lane in one direction: GT/s less the line code (Linux, drivers/pci/pci.h).
_LANE_BYTES_PER_S = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")

Facts = Mapping[str, Any]


class Link(NamedTuple):
    """A card's link: the generation it can run at, its lanes and the most it could have.

    `own_generation` is the largest of the card itself, None where only that of card and host
    together is told.
    """

    generation: int
    width: int
    max_width: int
    own_generation: int | None = None

    @property
    def bytes_per_s(self) -> float | None:
        """Of each direction, headers of packets included; None for an unknown generation."""
        lane = _LANE_BYTES_PER_S.get(self.generation)
        return None if lane is None else lane * self.width


def links(facts: Facts) -> list[Link | None]:
    """Return the links of a node's cards in order; None for one that is not told.

    The generation is the largest that card and host share, of the kernel's facts the card's own: an
    idle card lowers the current one.
    """
    told = sequence(tool_data(facts, "nvidia-smi -q", "nvidia-smi-q").get("gpus"))
    if told:
        return [_nvidia(mapping(gpu)) for gpu in told]
    return [_kernel(pci_device(facts, card.address)) for card in frozen_cards(facts)]


def below_own(facts: Mapping[str, Facts]) -> list[str]:
    """Return, in words, the links of frozen nodes that cannot do what their device could.

    Of cards, fewer lanes than they have, or a slot of a lower generation; of network devices, which
    save no power so, the generation that they ran at too.
    """
    return [f"{node} {line}" for node, own in facts.items() for line in (*_cards(own), *_nics(own))]


def generation(speed: str | None) -> int | None:
    """Return the generation of a speed as the kernel prints it, `16.0 GT/s PCIe`."""
    found = _SPEED.match(speed or "")
    return _GENERATIONS.get(float(found[1])) if found else None


def _cards(facts: Facts) -> Iterator[str]:
    for index, link in enumerate(links(facts)):
        if link is None:
            continue
        if link.width < link.max_width:
            yield f"gpu{index} has {link.width} of {link.max_width} PCIe lanes"
        if link.own_generation is not None and link.generation < link.own_generation:
            yield (
                f"gpu{index} can run at PCIe generation {link.generation} "
                f"of its {link.own_generation}"
            )


def _nics(facts: Facts) -> Iterator[str]:
    for address, names in _network(facts).items():
        device = pci_device(facts, address)
        link, ran = _kernel(device), generation(text(device.get("speed")))
        if link is None:
            continue
        name = "/".join(names)
        if link.width < link.max_width:
            yield f"{name} has {link.width} of {link.max_width} PCIe lanes"
        if ran is not None and ran < link.generation:
            yield f"{name} runs at PCIe generation {ran} of its {link.generation}"


def _network(facts: Facts) -> dict[str | None, list[str]]:
    """Return the names of interfaces and HCAs by the PCI address behind them."""
    nics = mapping(facts.get("nics"))
    found: dict[str | None, list[str]] = {}
    for kind in ("interfaces", "rdma"):
        for name, one in mapping(nics.get(kind)).items():
            address = pci_address(text(mapping(one).get("bus_address")))
            if pci_device(facts, address).get("kind") == "network":
                found.setdefault(address, []).append(name)
    return found


def _nvidia(gpu: Mapping[str, Any]) -> Link | None:
    told = mapping(mapping(gpu.get("pci")).get("gpu_link_info"))
    speeds, lanes = mapping(told.get("pcie_generation")), mapping(told.get("link_width"))
    shared, width = integer(speeds.get("max")), _lanes(lanes.get("current"))
    most = _lanes(lanes.get("max"))
    if shared is None or width is None or most is None:
        return None
    return Link(shared, width, most, integer(speeds.get("device_max")))


def _kernel(device: Mapping[str, Any]) -> Link | None:
    own = generation(text(device.get("max_speed")))
    width, most = integer(device.get("width")), integer(device.get("max_width"))
    return None if own is None or width is None or most is None else Link(own, width, most)


def _lanes(cell: Any) -> int | None:
    """Return the lanes of `16x`."""
    digits = (text(cell) or "").removesuffix("x")
    return int(digits) if digits.isdecimal() else None
