"""PCIe links of cards, from the frozen `nvidia-smi -q`."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from servemap.parsers.values import mapping, text

# Bytes/s of a lane in one direction: GT/s less the line code (Linux, drivers/pci/pci.h).
_LANE_BYTES_PER_S = {
    1: 2.5e9 / 8 * 8 / 10,
    2: 5e9 / 8 * 8 / 10,
    3: 8e9 / 8 * 128 / 130,
    4: 16e9 / 8 * 128 / 130,
    5: 32e9 / 8 * 128 / 130,
}
_CARD = re.compile(r"^GPU [0-9A-Fa-f]+:[0-9A-Fa-f]+:", re.MULTILINE)
_LINK = re.compile(
    r"PCIe Generation\s*\n\s+Max\s+: (?P<generation>\d+)\s*\n(?:(?!.*Link Width).*\n)*?"
    r".*Link Width\s*\n\s+Max\s+: (?P<most>\d+)x\s*\n\s+Current\s+: (?P<width>\d+)x"
)


class Link(NamedTuple):
    """A card's link: the generation it can run at, its lanes and the most it could have."""

    generation: int
    width: int
    max_width: int

    @property
    def bytes_per_s(self) -> float | None:
        """Of each direction, headers of packets included; None for an unknown generation."""
        lane = _LANE_BYTES_PER_S.get(self.generation)
        return None if lane is None else lane * self.width


def links(facts: Mapping[str, Any]) -> list[Link | None]:
    """Return the links of a node's cards in order; None for one that is not told.

    The generation is the largest that card and host share: an idle card lowers the current one.
    """
    tools = mapping(mapping(facts.get("accelerators")).get("tools"))
    said = text(mapping(tools.get("nvidia-smi -q")).get("stdout")) or ""
    return [_link(_LINK.search(block)) for block in _CARD.split(said)[1:]]


def narrow(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return, in words, the cards of frozen nodes whose links have fewer lanes than they could."""
    return [
        f"{node} gpu{index} has {link.width} of {link.max_width} PCIe lanes"
        for node, own in facts.items()
        for index, link in enumerate(links(own))
        if link is not None and link.width < link.max_width
    ]


def _link(found: re.Match[str] | None) -> Link | None:
    if found is None:
        return None
    return Link(int(found["generation"]), int(found["width"]), int(found["most"]))
