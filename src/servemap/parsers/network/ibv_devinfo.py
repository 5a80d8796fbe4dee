"""ibv_devinfo: devices and ports as the verbs library sees them."""

import re
from typing import Any

from servemap.parsers.cells import number, value
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_FIELD = re.compile(r"([a-z][a-z0-9_]{0,40}):\s{1,40}(\S.{0,200})")
_GID = re.compile(r"GID\[ {0,3}(\d{1,3})\]:\s{1,40}([0-9a-f:.]{2,45})(?:, (\S.{0,40}))?")
# After a word or a figure stands its code in the verbs library.
_CODE = re.compile(r" \(\d{1,3}\)$")
_SPEED = re.compile(r"(\d{1,4}(?:\.\d{1,2})?) Gbps")
_WIDTH = re.compile(r"(\d{1,2})X?")
_GBIT = 1_000_000_000


def parse_ibv_devinfo(text: str) -> Extract:
    """Devices and ports as the verbs library sees them.

    `devices`: `name`, what is printed for the device (`fw_ver`, `node_guid`, `transport` ...) as
    `attributes`, and `ports`: `port`, `state` (`PORT_ACTIVE`), `physical_state` (`LINK_UP`; null
    without -v), `link_layer`, `max_mtu_bytes`, `active_mtu_bytes`, `rate_bits_per_s` (lanes by
    speed as -v prints them; null unless the port is active and linked), `gids` (`index`, `gid`,
    `type` as printed, else null), other lines as `attributes`. Codes in brackets are left out, and
    so are the lists of capabilities.

    Raises:
        ParseError: there is no device.
    """
    devices: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    ports: list[dict[str, Any]] = []
    for line, row in ended(text, skipped):
        word = row.strip()
        found = _FIELD.fullmatch(word)
        if found and found[1] == "hca_id":
            ports = []
            devices.append({"name": found[2], "attributes": {}, "ports": ports})
        elif found and devices and found[1] == "port" and found[2].isdecimal():
            ports.append({"port": int(found[2]), "attributes": {}, "gids": []})
        elif found and devices:
            (ports or devices)[-1]["attributes"][found[1]] = _CODE.sub("", found[2])
        elif ports and (gid := _GID.fullmatch(word)):
            ports[-1]["gids"].append({"index": int(gid[1]), "gid": gid[2], "type": gid[3]})
        else:
            skipped.append(Skipped(line, "no field of ibv_devinfo"))
    if not devices:
        raise foreign("ibv_devinfo", "line such as hca_id: mlx5_0")
    for device in devices:
        device["attributes"] = _values(device["attributes"])
        device["ports"] = [_finished(port) for port in device["ports"]]
    return Extract({"devices": devices}, skipped)


def _finished(port: dict[str, Any]) -> dict[str, Any]:
    attributes = port["attributes"]
    state, physical = attributes.pop("state", None), attributes.pop("phys_state", None)
    speed = _SPEED.fullmatch(attributes.get("active_speed", ""))
    width = _WIDTH.fullmatch(attributes.get("active_width", ""))
    gbit = number(speed[1]) if speed else None
    linked = state == "PORT_ACTIVE" and physical == "LINK_UP"
    return {
        "port": port["port"],
        "state": state,
        "physical_state": physical,
        "link_layer": attributes.pop("link_layer", None),
        "max_mtu_bytes": number(attributes.pop("max_mtu", "")),
        "active_mtu_bytes": number(attributes.pop("active_mtu", "")),
        "rate_bits_per_s": round(gbit * int(width[1]) * _GBIT)
        if linked and gbit and width
        else None,
        "gids": port["gids"],
        "attributes": _values(attributes),
    }


def _values(attributes: dict[str, str]) -> dict[str, Any]:
    """Return numbers as such; versions, identifiers and masks stay text."""
    return {
        name: said
        if name.endswith(("_ver", "_guid", "_id")) or said.startswith("0x")
        else value(said)
        for name, said in attributes.items()
    }
