"""Facts of PCI devices whose link matters: cards and network devices. Format: sysfs-bus-pci."""

import os
from typing import Any, Dict, Optional

from .facts_host import sysfs_number
from .probe import list_folder, read_file, read_int

PCI_ROOT = "/sys/bus/pci/devices"
# First byte of the class (include/linux/pci_ids.h): network, display, processing accelerators.
KINDS = {"02": "network", "03": "card", "12": "card"}


def pci() -> Dict[str, Any]:
    """Return the devices by address.

    Each is `{"kind", "vendor", "device", "numa_node", "speed", "max_speed", "width",
    "max_width"}`: the speeds as the kernel prints them (`16.0 GT/s PCIe`), the widths in lanes;
    null where it does not know.
    """
    found = {}
    for address in list_folder(PCI_ROOT):
        path = os.path.join(PCI_ROOT, address)
        kind = KINDS.get((read_file(os.path.join(path, "class")) or "")[2:4])
        if kind is None:
            continue
        found[address] = {
            "kind": kind,
            "vendor": read_file(os.path.join(path, "vendor")),
            "device": read_file(os.path.join(path, "device")),
            "numa_node": sysfs_number(read_int(os.path.join(path, "numa_node"))),
            "speed": _speed(os.path.join(path, "current_link_speed")),
            "max_speed": _speed(os.path.join(path, "max_link_speed")),
            "width": _width(os.path.join(path, "current_link_width")),
            "max_width": _width(os.path.join(path, "max_link_width")),
        }
    return {"devices": found}


def _speed(path: str) -> Optional[str]:
    said = read_file(path)
    return None if not said or said.startswith("Unknown") else said


def _width(path: str) -> Optional[int]:
    """Return lanes; 0 and 255 stand for unknown (PCI_EXP_LNKSTA of a virtual function, no link)."""
    lanes = read_int(path)
    return None if lanes in (0, 255) else lanes
