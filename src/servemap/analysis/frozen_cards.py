"""The cards of a node, as the vendors' tools listed them when its facts were frozen."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from servemap.analysis.frozen import tool_data, tool_text
from servemap.parsers.values import mapping, number, sequence, text

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.?[0-9a-f]?")
_SHORT = re.compile(r"[0-9a-f]{1,16}")
_LISTED = re.compile(r"^GPU \d+: (?P<name>.+?) \(UUID: [^)]*\)\s*$", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG ", re.MULTILINE)
_WHOLE = "SPX"

Facts = Mapping[str, Any]


class Card(NamedTuple):
    """A card in the order of its vendor's tool; what that does not tell is None."""

    name: str | None
    address: str | None
    """DOMAIN:BUS:DEVICE."""
    partition: str | None = None
    """How the card is divided, None where it is whole or the tool does not say."""
    memory_bytes_per_s: float | None = None


def frozen_cards(facts: Facts) -> list[Card]:
    """Return the cards that the first tool that names any has named; [] where none does."""
    return next((found for read in _READERS if (found := read(facts))), [])


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


def pci_device(facts: Facts, address: str | None) -> dict[str, Any]:
    """Return what the kernel says of a PCI device (`onnode/facts_pci.py`); empty if nothing."""
    devices = mapping(mapping(facts.get("pci")).get("devices"))
    return next((mapping(one) for key, one in devices.items() if pci_address(key) == address), {})


def _nvidia(facts: Facts) -> list[Card]:
    said = tool_text(facts, "nvidia-smi -L")
    names = [found["name"] for found in _LISTED.finditer(said)]
    blocks = sequence(tool_data(facts, "nvidia-smi -q", "nvidia-smi-q").get("gpus"))
    addresses = [pci_address(text(mapping(block).get("id"))) for block in blocks]
    if not names:
        return [Card(None, address) for address in addresses]
    partition = "MIG" if _MIG.search(said) else None
    if len(addresses) != len(names):
        return [Card(name, None, partition) for name in names]
    return [Card(*pair, partition) for pair in zip(names, addresses, strict=True)]


def _amd_smi(facts: Facts) -> list[Card]:
    found = []
    for gpu in map(mapping, sequence(tool_data(facts, "amd-smi static", "amd-smi").get("gpus"))):
        name = mapping(gpu.get("asic")).get("market_name") or mapping(gpu.get("board")).get(
            "product_name"
        )
        mode = text(mapping(gpu.get("partition")).get("compute_partition"))
        rate = number(mapping(gpu.get("vram")).get("max_bandwidth_bytes_per_s"))
        card = _card(name, mapping(gpu.get("bus")).get("bdf"), mode)
        found.append(card._replace(memory_bytes_per_s=rate))
    return found


def _rocm_smi(facts: Facts) -> list[Card]:
    found = []
    cards = mapping(tool_data(facts, "rocm-smi --showallinfo", "rocm-smi").get("cards"))
    for card in map(mapping, cards.values()):
        fields = mapping(card.get("fields"))
        mode = text(fields.get("compute_partition"))
        found.append(_card(card.get("name"), fields.get("pci_bus"), mode))
    return found


def _drawn(command: str, kind: str, part: str) -> Callable[[Facts], list[Card]]:
    """Return what reads the table that a tool draws without options, or of its `info`."""

    def read(facts: Facts) -> list[Card]:
        rows = map(mapping, sequence(tool_data(facts, command, kind).get(part)))
        return [_card(row.get("name"), row.get("bus_id"), None) for row in rows]

    return read


def _card(name: Any, bus_id: Any, mode: str | None) -> Card:
    partition = None if mode in (None, _WHOLE, "N/A") else mode
    return Card(text(name), pci_address(text(bus_id)), partition)


_READERS = (
    _nvidia,
    _amd_smi,
    _rocm_smi,
    _drawn("ixsmi", "ixsmi", "gpus"),
    _drawn("mx-smi", "mx-smi", "gpus"),
    _drawn("npu-smi info", "npu-smi", "npus"),
    _drawn("xpu-smi", "xpu-smi", "gpus"),
)
