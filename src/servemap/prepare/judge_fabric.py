"""Judging the rails: interfaces, MTU, GIDs, the way from RDMA devices to the cards' memory."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from servemap.prepare.lines import Line, ok, some
from servemap.prepare.wanted import Wanted

ROCE_V2 = "RoCE v2"
GID_VARIABLE = "NCCL_IB_GID_INDEX"
DMA_BUF_KERNEL = (5, 12)


def mtu_line(
    wanted: Wanted, found: Mapping[str, Any], reference: tuple[str, Mapping[int, int]] | None
) -> Line:
    """Return whether the interfaces of the rails are up and have the MTU of the other node's.

    Args:
        wanted: the node.
        found: {interface: its facts, None where there is none}.
        reference: a node that the others are compared with and the MTU of each of its rails.
    """
    node = wanted.spec.id
    bad, seen = [], []
    for number, rail in enumerate(wanted.spec.rails):
        link = found.get(rail.netdev)
        if not isinstance(link, Mapping):
            bad.append(f"rail {number}: there is no interface {rail.netdev}")
            continue
        seen.append(f"{rail.netdev} {link.get('mtu')}")
        if link.get("operstate") not in ("up", "unknown"):
            bad.append(f"rail {number}: {rail.netdev} is {link.get('operstate')}")
        if reference is not None:
            other = reference[1].get(number)
            if other is not None and other != link.get("mtu"):
                bad.append(
                    f"rail {number}: {rail.netdev} has MTU {link.get('mtu')}, that of "
                    f"{reference[0]} has {other}"
                )
    if bad:
        return Line(
            node,
            "rails and MTU",
            "FAIL",
            "; ".join(bad),
            "mend nodes.rails, bring the link up, or set one MTU along the rail: "
            "ip link set DEV mtu N (switches included)",
        )
    return ok(node, "rails and MTU", ", ".join(seen))


def rail_mtus(wanted: Wanted, found: Mapping[str, Any]) -> dict[int, int]:
    """Return {number of the rail: MTU} of the rails whose MTU is known."""
    mtus = {}
    for number, rail in enumerate(wanted.spec.rails):
        link = found.get(rail.netdev)
        if isinstance(link, Mapping) and isinstance(link.get("mtu"), int):
            mtus[number] = link["mtu"]
    return mtus


def gid_line(wanted: Wanted, devices: Mapping[str, Any]) -> Line:
    """Return whether each RDMA device has an active port and a GID that the servers can use."""
    node = wanted.spec.id
    indices = sorted(wanted.env(GID_VARIABLE))
    bad, seen = [], []
    for hca in wanted.hcas:
        device = devices.get(hca)
        if not isinstance(device, Mapping):
            there = some(devices) or "none"
            bad.append(f"there is no RDMA device {hca} (there: {there})")
            continue
        problem, text = _port(hca, device, indices)
        if problem:
            bad.append(problem)
        seen.append(text)
    if bad:
        return Line(
            node,
            "RDMA and GID",
            "FAIL",
            "; ".join(bad),
            "mend nodes.rails or the link; give the interface an address of its own for a RoCE v2 "
            f"entry (show_gids), and {GID_VARIABLE} the index of one",
        )
    return ok(node, "RDMA and GID", "; ".join(seen))


def _port(hca: str, device: Mapping[str, Any], indices: list[str]) -> tuple[str, str]:
    """Return what is wrong with a device's first active port (or nothing), and what it is."""
    ports = device["ports"]
    active = {name: port for name, port in ports.items() if "ACTIVE" in str(port.get("state"))}
    if not active:
        states = ", ".join(f"port {name} {port.get('state')}" for name, port in ports.items())
        return f"{hca} is not active: {states or 'no port'}", ""
    name, port = next(iter(active.items()))
    if port.get("link_layer") == "InfiniBand":
        return "", f"{hca} InfiniBand, {port.get('rate')}"
    usable = {index: entry for index, entry in port["gids"].items() if entry.get("type") == ROCE_V2}
    if not usable:
        return f"{hca} port {name} has no RoCE v2 GID", ""
    wrong = [index for index in indices if index not in usable]
    if wrong:
        entry = port["gids"].get(wrong[0])
        what = f"is {entry.get('type') or 'of unknown type'}" if entry else "is empty"
        there = ", ".join(usable)
        return f"{GID_VARIABLE}={wrong[0]} {what} on {hca}; RoCE v2 are {there}", ""
    routable = [index for index, entry in usable.items() if is_ipv4(str(entry.get("gid")))]
    return "", f"{hca} RoCE v2 at {', '.join(indices or routable or usable)}"


def is_ipv4(gid: str) -> bool:
    """Return whether a GID holds an IPv4 address."""
    try:
        return ipaddress.IPv6Address(gid).ipv4_mapped is not None
    except ValueError:
        return False


def peer_memory_line(node: str, found: Mapping[str, Any], kernel: Mapping[str, Any]) -> Line:
    """Return whether RDMA devices can read and write the cards' memory.

    Either a module of peer memory is loaded, or the kernel's RDMA part registers dma-bufs and the
    driver of the cards exports them: amdgpu, and NVIDIA's open kernel modules.
    """
    check = "peer memory"
    modules = found.get("modules") or []
    if modules:
        return ok(node, check, f"module {', '.join(modules)}")
    driver = str(kernel.get("nvidia_driver") or "")
    exports = "Open Kernel Module" in driver or bool(found.get("amdgpu"))
    if found.get("dma_buf") and exports:
        return ok(node, check, "dma-buf")
    if found.get("dma_buf") is None and exports and kernel_version(kernel) >= DMA_BUF_KERNEL:
        return ok(node, check, f"dma-buf, by the kernel's version {kernel.get('release')}")
    reasons = ["no module of peer memory"]
    if not exports:
        reasons.append("no driver that exports dma-bufs")
    if not found.get("dma_buf"):
        reasons.append("RDMA of this kernel has no dma-buf")
    return Line(
        node,
        check,
        "warn",
        "; ".join(reasons),
        "modprobe nvidia-peermem, or use NVIDIA's open kernel modules on Linux 5.12 or newer: "
        "without, collectives are copied through the host's memory",
    )


def kernel_version(kernel: Mapping[str, Any]) -> tuple[int, int]:
    """Return major and minor of a kernel's release; (0, 0) where it cannot be read."""
    match = re.match(r"(\d+)\.(\d+)", str(kernel.get("release")))
    return (int(match[1]), int(match[2])) if match else (0, 0)
