"""Facts of the machine: kernel, CPU, memory, NUMA, network interfaces. Formats: proc(5), sysfs."""

import json
import os
import platform
import socket
from collections import Counter
from typing import Any, Dict, List, Optional

from .ident import machine_boot_id
from .probe import list_folder, read_file, read_int, run_tool
from .redact import redact_text

CPU_ROOT = "/sys/devices/system/cpu"
NODE_ROOT = "/sys/devices/system/node"
NET_ROOT = "/sys/class/net"
RDMA_ROOT = "/sys/class/infiniband"


def parse_os_release(text: str) -> Dict[str, str]:
    """Parse os-release(5) into its keys, quotes taken off."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, equals, value in pairs if equals}


def parse_cpuinfo(text: str) -> Dict[str, Any]:
    """Parse /proc/cpuinfo into model, vendor and counts; null where there is no such row.

    Returns:
        `{"model": {name: threads}, "vendor", "microcode", "sockets", "cores", "threads", "flags"}`.
    """
    threads: List[Dict[str, str]] = []
    for block in text.split("\n\n"):
        rows = (line.partition(":") for line in block.splitlines())
        found = {key.strip(): value.strip() for key, _colon, value in rows}
        if "processor" in found:
            threads.append(found)
    models = Counter(one.get("model name") or one.get("CPU part") or "unknown" for one in threads)
    sockets = {one["physical id"] for one in threads if "physical id" in one}
    cores = {(one["physical id"], one["core id"]) for one in threads if "core id" in one}
    first = threads[0] if threads else {}
    flags = first.get("flags") or first.get("Features")
    return {
        "model": dict(models),
        "vendor": first.get("vendor_id") or first.get("CPU implementer"),
        "microcode": first.get("microcode"),
        "sockets": len(sockets) or None,
        "cores": len(cores) or None,
        "threads": len(threads) or None,
        "flags": len(flags.split()) if flags else None,
    }


def parse_kb(text: str, keys: List[str]) -> Dict[str, int]:
    """Pick `keys` from a meminfo; kB, or a plain count where the file gives no unit."""
    found = {}
    for line in text.splitlines():
        name, _colon, rest = line.rpartition(":")
        key = name.split()[-1] if name else ""
        if key in keys and rest.split():
            found[key] = int(rest.split()[0])
    return found


def parse_ip_addresses(text: str) -> Dict[str, List[str]]:
    """Parse `ip -j address` into {interface: ["address/prefix"]}. ValueError if it is not JSON."""
    found: Dict[str, List[str]] = {}
    for link in json.loads(text):
        if isinstance(link, dict) and "ifname" in link:
            found[link["ifname"]] = [
                "%s/%s" % (one["local"], one.get("prefixlen"))
                for one in link.get("addr_info", [])
                if "local" in one
            ]
    return found


def kernel() -> Dict[str, Any]:
    """Return uname, the distribution, the boot and the kernel's command line."""
    uname = os.uname()
    reasons: Dict[str, str] = {}
    cmdline = read_file("/proc/cmdline", reasons)
    release = read_file("/etc/os-release", reasons)
    return {
        "hostname": socket.gethostname(),
        "system": uname.sysname,
        "release": uname.release,
        "version": uname.version,
        "machine": uname.machine,
        "libc": " ".join(platform.libc_ver()) or None,
        "boot_id": machine_boot_id(),
        "cmdline": None if cmdline is None else redact_text(cmdline),
        "os_release": None if release is None else parse_os_release(release),
        "unreadable": reasons,
    }


def cpu() -> Dict[str, Any]:
    """Return the processor, its topology and its frequency governors."""
    reasons: Dict[str, str] = {}
    found = parse_cpuinfo(read_file("/proc/cpuinfo", reasons) or "")
    names = [name for name in list_folder(CPU_ROOT) if name[:3] == "cpu" and name[3:].isdigit()]
    topology = {}
    governors: "Counter[str]" = Counter()
    for name in sorted(names, key=lambda one: int(one[3:])):
        folder = os.path.join(CPU_ROOT, name, "topology")
        topology[name] = {
            "package": read_int(os.path.join(folder, "physical_package_id"), reasons),
            "core": read_int(os.path.join(folder, "core_id"), reasons),
            "siblings": read_file(os.path.join(folder, "thread_siblings_list"), reasons),
        }
        governor = read_file(os.path.join(CPU_ROOT, name, "cpufreq", "scaling_governor"), reasons)
        if governor:
            governors[governor] += 1
    found.update(
        online=read_file(os.path.join(CPU_ROOT, "online"), reasons),
        isolated=read_file(os.path.join(CPU_ROOT, "isolated"), reasons),
        smt=read_file(os.path.join(CPU_ROOT, "smt", "control"), reasons),
        governors=dict(governors) or None,
        topology=topology,
        unreadable=reasons,
    )
    return found


def memory() -> Dict[str, Any]:
    """Return the sizes (kB) of memory, swap and huge pages."""
    reasons: Dict[str, str] = {}
    keys = ["MemTotal", "SwapTotal", "HugePages_Total", "Hugepagesize"]
    text = read_file("/proc/meminfo", reasons) or ""
    huge = "/sys/kernel/mm/transparent_hugepage/enabled"
    return {
        **dict.fromkeys(keys),
        **parse_kb(text, keys),
        "transparent_hugepage": read_file(huge, reasons),
        "swappiness": read_int("/proc/sys/vm/swappiness", reasons),
        "unreadable": reasons,
    }


def numa() -> Dict[str, Any]:
    """Return cpus, memory (kB) and distances of each NUMA node."""
    nodes = {}
    for name in list_folder(NODE_ROOT):
        if name[:4] == "node" and name[4:].isdigit():
            reasons: Dict[str, str] = {}
            folder = os.path.join(NODE_ROOT, name)
            meminfo = read_file(os.path.join(folder, "meminfo"), reasons) or ""
            nodes[name] = {
                "cpus": read_file(os.path.join(folder, "cpulist"), reasons),
                "MemTotal": parse_kb(meminfo, ["MemTotal"]).get("MemTotal"),
                "distance": read_file(os.path.join(folder, "distance"), reasons),
                "unreadable": reasons,
            }
    if not nodes:
        return {"nodes": {}, "error": "%s names no node" % NODE_ROOT}
    return {"nodes": nodes}


def sysfs_number(value: Optional[int]) -> Optional[int]:
    """Return a number of sysfs, where -1 stands for unknown, as a number or None."""
    return None if value == -1 else value


def _device(path: str) -> Dict[str, Any]:
    device = os.path.join(path, "device")
    driver = os.path.join(device, "driver")
    real = os.path.realpath(device)
    return {
        "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
        "bus_address": os.path.basename(real) if os.path.exists(device) else None,
        "numa_node": sysfs_number(read_int(os.path.join(device, "numa_node"))),
    }


def addresses() -> Dict[str, Any]:
    """Return {"interfaces": {name: [address/prefix]}} or the reason why they are not known."""
    record = run_tool(["ip", "-j", "address", "show"])
    if record.get("code") != 0:
        return {"error": record.get("error") or record["stderr"].strip()}
    try:
        return {"interfaces": parse_ip_addresses(record["stdout"])}
    except ValueError as error:
        return {"error": "ip gave no JSON: %s" % error}


def nics() -> Dict[str, Any]:
    """Return the network interfaces and RDMA devices; hardware addresses are not recorded."""
    known = addresses()
    interfaces = {}
    for name in list_folder(NET_ROOT):
        path = os.path.join(NET_ROOT, name)
        if not os.path.isdir(path):
            continue
        reasons: Dict[str, str] = {}
        interfaces[name] = {
            "operstate": read_file(os.path.join(path, "operstate"), reasons),
            "speed_mbit": sysfs_number(read_int(os.path.join(path, "speed"), reasons)),
            "mtu": read_int(os.path.join(path, "mtu"), reasons),
            "addresses": known.get("interfaces", {}).get(name),
            **_device(path),
            "unreadable": reasons,
        }
    found: Dict[str, Any] = {"interfaces": interfaces, "rdma": rdma()}
    if "error" in known:
        found["addresses_error"] = known["error"]
    return found


def rdma() -> Dict[str, Any]:
    """Return the RDMA devices (HCAs) with the state, rate and link layer of their ports."""
    found = {}
    for name in list_folder(RDMA_ROOT):
        path = os.path.join(RDMA_ROOT, name)
        ports = {}
        for port in list_folder(os.path.join(path, "ports")):
            folder = os.path.join(path, "ports", port)
            ports[port] = {
                key: read_file(os.path.join(folder, key)) for key in ("state", "rate", "link_layer")
            }
        found[name] = {
            **_device(path),
            "firmware": read_file(os.path.join(path, "fw_ver")),
            "netdevs": list_folder(os.path.join(path, "device", "net")),
            "ports": ports,
        }
    return found
