"""ibstat: state and rate of the ports of InfiniBand and RoCE devices."""

import re
from typing import Any

from servemap.parsers.cells import key, number, value
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_DEVICE = re.compile(r"(CA|Switch|Router|Unknown) '([^']{1,64})'")
_PORT = re.compile(r"Port (\d{1,4}):")
_FIELD = re.compile(r"([A-Za-z][\w ]{0,40}): {1,9}(\S.{0,200})")
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?)(?: \(FDR10\))?")
# superbench gathers the system image GUIDs of all hosts so, before it groups them by switch.
_HOST = re.compile(r"VM_hostname (\S{1,255})")
_GUID = re.compile(r"[0-9a-f]{16}")
_GBIT = 1_000_000_000


def parse_ibstat(text: str) -> Extract:
    """State and rate of every port.

    `devices`: `name`, `kind` (`CA`, `Switch`, `Router`), what is printed for the device
    (`ca_type`, `firmware_version`, `node_guid` ...) as `attributes`, and `ports`: `port`, `state`,
    `physical_state`, `link_layer`, `usable` (active and linked), `rate_bits_per_s` (null unless
    usable: a port that is down reports a default), other lines as `attributes`.

    `hosts`: where the text is superbench's list of hosts instead, each `host` and its
    `system_image_guids`; else empty.

    Raises:
        ParseError: there is no device and no such list.
    """
    devices: list[dict[str, Any]] = []
    hosts: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    ports: list[dict[str, Any]] = []
    for line, row in ended(text, skipped):
        word = row.strip()
        if device := _DEVICE.fullmatch(word):
            ports = []
            devices.append({"name": device[2], "kind": device[1], "attributes": {}, "ports": ports})
        elif (port := _PORT.fullmatch(word)) and devices:
            ports.append({"port": int(port[1]), "attributes": {}})
        elif word.startswith(("ibpanic:", "ibwarn:")):
            skipped.append(Skipped(line, "the tool's own complaint"))
        elif (found := _FIELD.fullmatch(word)) and devices and row[:1].isspace():
            (ports or devices)[-1]["attributes"][key(found[1])] = found[2]
        elif host := _HOST.fullmatch(word):
            hosts.append({"host": host[1], "system_image_guids": []})
        elif hosts and _GUID.fullmatch(word):
            hosts[-1]["system_image_guids"].append(f"0x{word}")
        else:
            skipped.append(Skipped(line, "no line of ibstat"))
    if not devices and not hosts:
        raise foreign("ibstat", "line such as CA 'mlx5_0'")
    for entry in devices:
        entry["attributes"] = _values(entry["attributes"])
        entry["ports"] = [_finished(port) for port in entry["ports"]]
    return Extract({"devices": devices, "hosts": hosts}, skipped)


def _finished(port: dict[str, Any]) -> dict[str, Any]:
    attributes = port["attributes"]
    state, physical = attributes.pop("state", None), attributes.pop("physical_state", None)
    layer, rate = attributes.pop("link_layer", None), attributes.pop("rate", None)
    usable = None if state is None else state == "Active" and physical in ("LinkUp", None)
    gbit = number(found[1]) if rate and (found := _RATE.fullmatch(rate)) else None
    return {
        "port": port["port"],
        "state": state,
        "physical_state": physical,
        "link_layer": layer,
        "usable": usable,
        "rate_bits_per_s": round(gbit * _GBIT) if usable and gbit else None,
        "attributes": _values(attributes),
    }


def _values(attributes: dict[str, str]) -> dict[str, Any]:
    """Return numbers as such; versions and identifiers stay text."""
    return {
        name: said if "version" in name or said.startswith("0x") else value(said)
        for name, said in attributes.items()
    }
