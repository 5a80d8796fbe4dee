"""Survey of the links between nodes: interfaces, RDMA devices, the way to the cards' memory.

Formats: https://docs.kernel.org/infiniband/user_verbs.html and the kernel's
Documentation/ABI/stable/sysfs-class-infiniband (gids, gid_attrs/types, gid_attrs/ndevs).
"""

import os
from typing import Any, Dict, List

from .probe import list_folder, read_file, read_int

NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
# Exported by ib_uverbs where RDMA devices can register a dma-buf (Linux 5.12 and newer).
DMA_BUF_SYMBOL = "ib_umem_dmabuf_get"


def netdevs(names: List[str], root: str) -> Dict[str, Any]:
    """Return `{name: {"mtu", "operstate", "speed_mbit"} or null}` of some interfaces."""
    found: Dict[str, Any] = {}
    for name in names:
        folder = os.path.join(root + "/sys/class/net", name)
        if not os.path.isdir(folder):
            found[name] = None
            continue
        speed = read_int(os.path.join(folder, "speed"))
        found[name] = {
            "mtu": read_int(os.path.join(folder, "mtu")),
            "operstate": read_file(os.path.join(folder, "operstate")),
            "speed_mbit": speed if speed is not None and speed > 0 else None,
        }
    return found


def gids(folder: str) -> Dict[str, Dict[str, Any]]:
    """Return `{index: {"gid", "type", "netdev"}}` of the entries of a port that are in use."""
    found = {}
    for index in sorted(list_folder(os.path.join(folder, "gids")), key=_number):
        gid = read_file(os.path.join(folder, "gids", index))
        if gid and gid != NO_GID:
            found[index] = {
                "gid": gid,
                "type": read_file(os.path.join(folder, "gid_attrs", "types", index)),
                "netdev": read_file(os.path.join(folder, "gid_attrs", "ndevs", index)),
            }
    return found


def _number(name: str) -> int:
    return int(name) if name.isdigit() else -1


def devices(root: str) -> Dict[str, Any]:
    """Return `{device: {"netdevs", "ports": {N: {"state", "rate", "link_layer", "gids"}}}}`."""
    top = root + "/sys/class/infiniband"
    found = {}
    for name in list_folder(top):
        ports = {}
        for port in list_folder(os.path.join(top, name, "ports")):
            folder = os.path.join(top, name, "ports", port)
            ports[port] = {
                key: read_file(os.path.join(folder, key)) for key in ("state", "rate", "link_layer")
            }
            ports[port]["gids"] = gids(folder)  # type: ignore[assignment]
        found[name] = {
            "netdevs": list_folder(os.path.join(top, name, "device", "net")),
            "ports": ports,
        }
    return found


def peer_memory(root: str) -> Dict[str, Any]:
    """Return what lets RDMA devices reach the cards' memory.

    Returns:
        `{"modules": [...], "dma_buf": BOOL or null, "amdgpu": BOOL}`: loaded modules of peer
        memory, and whether the kernel's RDMA part has dma-buf (null where symbols are hidden).
    """
    modules = {
        line.split(" ", 1)[0] for line in (read_file(root + "/proc/modules") or "").splitlines()
    }
    symbols = read_file(root + "/proc/kallsyms")
    return {
        "modules": sorted(
            name for name in modules if "peer_mem" in name or name.endswith("peermem")
        ),
        "dma_buf": DMA_BUF_SYMBOL in symbols if symbols else None,
        "amdgpu": "amdgpu" in modules,
    }
