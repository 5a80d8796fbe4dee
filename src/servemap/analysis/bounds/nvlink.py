"""NVLink of the cards of a node, from the frozen `nvidia-smi nvlink -s`."""

from collections.abc import Mapping
from typing import Any

from servemap.analysis.frozen import tool_data
from servemap.parsers.values import integer, mapping, number, sequence


def nvlink_rates(facts: Mapping[str, Any]) -> dict[int, list[float]]:
    """Return the bytes/s in one direction of each active link, by the card's index."""
    found = {}
    for gpu in map(mapping, sequence(tool_data(facts, *_ASKED).get("gpus"))):
        index, links = integer(gpu.get("index")), mapping(gpu.get("links")).values()
        rates = [number(mapping(link).get("bytes_per_s")) for link in links]
        if index is not None:
            found[index] = [rate for rate in rates if rate]
    return found


def nvlink_missing(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return, in words, the cards with fewer or slower links than the best one of their node."""
    lines = []
    for node, own in facts.items():
        rates = nvlink_rates(own)
        most = max(rates.values(), key=sum, default=[])
        for index, mine in rates.items():
            if len(mine) < len(most):
                lines.append(f"{node} gpu{index} has {len(mine)} of {len(most)} NVLinks")
            elif sum(mine) < sum(most):
                lines.append(f"{node} gpu{index} has NVLinks that are slower than others'")
    return lines


_ASKED = ("nvidia-smi nvlink -s", "nvidia-smi-nvlink")
