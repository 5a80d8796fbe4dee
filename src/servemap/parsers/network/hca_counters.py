"""Counters and attributes of RDMA devices under /sys/class/infiniband, one file a line."""

import re
from typing import Any

from servemap.parsers.cells import is_missing, number
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.network.link_rate import read_rate
from servemap.parsers.records import Skipped

# `grep -H . FILES` and `tail -n +1 FILES` write a path and a value; the path may be relative.
_FILE = re.compile(r"([\w.-]{1,64})/([\w./-]{1,200})[:=\s]\s{0,9}(.{0,300})")
_FOLDER = "infiniband/"
_PORT = re.compile(r"ports/(\d{1,4})/(?:(counters|counters_ext|hw_counters)/)?([\w.-]{1,80})")
# Documentation/ABI/stable/sysfs-class-infiniband of Linux: these count words of four bytes.
_WORDS = ("port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64")
_WORD_BYTES = 4
# In bits, as PORT_PMA_ATTR in drivers/infiniband/core/sysfs.c of Linux. These counters "clamp at a
# count of all ones": https://blogtechexpert.com/view/book/EB0321117654_345.html
_WIDTHS = {
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 4),
    **dict.fromkeys(("link_error_recovery", "link_downed"), 8),
    **dict.fromkeys(("port_xmit_constraint_errors", "port_rcv_constraint_errors"), 8),
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"), 16),
    **dict.fromkeys(("port_rcv_switch_relay_errors", "port_xmit_discards", "VL15_dropped"), 16),
    **dict.fromkeys(("port_xmit_data", "port_rcv_data", "port_xmit_packets"), 32),
    **dict.fromkeys(("port_rcv_packets", "port_xmit_wait"), 32),
}


def may_grow(name: str, value: int | None) -> bool:
    """Return whether a counter of a port's `counters` is below the value where it stops."""
    word = _WORD_BYTES if name.endswith("_bytes") else 1
    width = _WIDTHS.get(name.replace("_bytes", "_data"))
    return width is None or value != (2**width - 1) * word


# A setting among the counters: how long a counter may be stale.
_SETTINGS = {"lifespan": "lifespan_ms"}
_STATE = re.compile(r"\d{1,2}: (\w{1,40})")
_HEADING = re.compile(r"==> (\S{1,600}) <==")


def parse_hca_counters(text: str) -> Extract:
    """Counters, state and rate of every port of every RDMA device, from sysfs.

    `devices`: `name`, `attributes` (files of the device, such as `fw_ver`) and `ports`: `port`,
    `state`, `physical_state`, `link_layer`, `rate_bits_per_s` (null unless the state is ACTIVE: a
    port that is down reports a default), `rate` as printed, `counters` and `hw_counters` by their
    names, and `settings`. `port_xmit_data` and `port_rcv_data` count words of four bytes; they are
    kept as `port_xmit_bytes` and `port_rcv_bytes`. `N/A (no PMA)` is null.

    Raises:
        ParseError: there is no file of an RDMA device.
    """
    devices: dict[str, dict[str, Any]] = {}
    skipped: list[Skipped] = []
    heading: str | None = None
    for line, row in ended(text, skipped):
        if row.startswith("==>") and (named := _HEADING.fullmatch(row)):
            heading = named[1]
            continue
        word = f"{heading}:{row.strip()}" if heading else row.strip()
        heading = None
        folder = word.find(_FOLDER)
        found = _FILE.fullmatch(word[folder + len(_FOLDER) :] if folder >= 0 else word)
        if found is None or (folder < 0 and not found[2].startswith(("ports/", "hw_counters/"))):
            skipped.append(Skipped(line, "no file of an RDMA device with its value"))
            continue
        name, path, said = found.groups()
        device = devices.setdefault(name, {"name": name, "attributes": {}, "ports": {}})
        if reason := _read_file(device, path, said.rstrip(" |")):
            skipped.append(Skipped(line, reason))
    if not devices:
        raise foreign("hca-counters", "path below /sys/class/infiniband with a value")
    for device in devices.values():
        device["ports"] = [_finished(port) for port in device["ports"].values()]
    return Extract({"devices": list(devices.values())}, skipped)


def _read_file(device: dict[str, Any], path: str, said: str) -> str | None:
    """Put the value of a file where it belongs; return the reason where it has none."""
    found = _PORT.fullmatch(path)
    if found is None:
        if "/" in path and not path.startswith("hw_counters/"):
            return "a file that is not read"
        name = path.removeprefix("hw_counters/")
        device["attributes"][name] = None if is_missing(said) else said
        return None
    index, group, name = int(found[1]), found[2], found[3]
    port = device["ports"].setdefault(
        index,
        {"port": index, "attributes": {}, "counters": {}, "hw_counters": {}, "settings": {}},
    )
    if group is None:
        port["attributes"][name] = said
        return None
    count = number(said)
    if not isinstance(count, int):
        if not is_missing(said):
            return "a counter whose value is no whole number"
        count = None
    if name in _SETTINGS:
        port["settings"][_SETTINGS[name]] = count
        return None
    if name in _WORDS:
        name = name.replace("_data", "_bytes")
        count = None if count is None else count * _WORD_BYTES
    port["hw_counters" if group == "hw_counters" else "counters"][name] = count
    return None


def _finished(port: dict[str, Any]) -> dict[str, Any]:
    attributes = port["attributes"]
    state, physical = (
        match[1] if (match := _STATE.fullmatch(attributes.get(name, ""))) else None
        for name in ("state", "phys_state")
    )
    rate = attributes.get("rate")
    return {
        "port": port["port"],
        "state": state,
        "physical_state": physical,
        "link_layer": attributes.get("link_layer"),
        "rate_bits_per_s": read_rate(rate) if rate and state == "ACTIVE" else None,
        "rate": rate,
        "counters": port["counters"],
        "hw_counters": port["hw_counters"],
        "settings": port["settings"],
    }
