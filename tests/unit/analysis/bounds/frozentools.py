"""Frozen facts with what vendors' tools said, made up in the tools' own layout."""

from typing import Any

UUID = "(UUID: GPU-00000000-0000-0000-0000-000000000000)"


def answers(tools: dict[str, str]) -> dict[str, Any]:
    """Return facts with what each command said."""
    records = {command: {"code": 0, "stdout": text} for command, text in tools.items()}
    return {"accelerators": {"tools": records}}


def listed(*names: str) -> str:
    """Return `nvidia-smi -L` of these cards."""
    return "".join(f"GPU {i}: {name} {UUID}\n" for i, name in enumerate(names))


def queried(bus: int, generation: int, width: int, own: int | str = "N/A") -> str:
    """Return the block of a card in `nvidia-smi -q`; `own` is the card's own generation."""
    return (
        f"GPU 00000000:{bus:02X}:00.0\n    PCI\n        Bus : 0x{bus:02X}\n"
        "        GPU Link Info\n            PCIe Generation\n"
        f"                Max    : {generation}\n                Current    : 1\n"
        f"                Device Max    : {own}\n                Host Max    : N/A\n"
        "            Link Width\n"
        f"                Max    : 16x\n                Current    : {width}x\n"
    )


def device(kind: str, speed: str, most: str, width: int = 16, numa: int = 0) -> dict[str, Any]:
    """Return the kernel's facts of a PCI device that could have 16 lanes."""
    return {"kind": kind, "vendor": "0x15b3", "device": "0x1021", "numa_node": numa,
            "speed": f"{speed} GT/s PCIe", "max_speed": f"{most} GT/s PCIe",
            "width": width, "max_width": 16}  # fmt: skip
