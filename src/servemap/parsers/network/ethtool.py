"""ethtool: statistics (-S) and settings of network interfaces."""

import re
from typing import Any

from servemap.parsers.cells import key
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.network.link_rate import read_rate
from servemap.parsers.records import Skipped

_STATISTICS = re.compile(
    r"NIC statistics(?: for ([\w.@-]{1,64}))?:|Standard stats for ([\w.@-]{1,64}):"
)
_COUNT = re.compile(r"-?\d{1,20}")
_LONGEST = 150
_SETTINGS = re.compile(r"Settings for ([\w.@-]{1,64}):")
_SETTING = re.compile(r"(\S.{0,60}?):(?:\s{1,9}(\S.{0,300})?)?")
_YES_NO = {"yes": True, "no": False, "on": True, "off": False}


def parse_ethtool_statistics(text: str) -> Extract:
    """Counters of a network interface, of ethtool -S.

    `blocks`, one a heading `NIC statistics:` (ethtool does not print the interface; `interface` is
    null unless it does): `counters` by their names as printed. Pause frames are
    `tx_prio3_pause` and the like on ConnectX: sent ones say that this host cannot take more.

    Raises:
        ParseError: there is no counter.
    """
    blocks: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    has_heading = False
    for line, row in ended(text, skipped):
        word = row.strip()
        if word.endswith(":") and (heading := _STATISTICS.fullmatch(word)):
            blocks.append({"interface": heading[1] or heading[2], "counters": {}})
            has_heading = True
            continue
        name, _, said = word.rpartition(":")
        count = said.strip()
        # Below its heading ethtool indents every counter.
        if (
            not name
            or (has_heading and not row[:1].isspace())
            or len(name) > _LONGEST
            or not _COUNT.fullmatch(count)
        ):
            skipped.append(Skipped(line, "no counter with a value"))
            continue
        if not blocks:
            blocks.append({"interface": None, "counters": {}})
        if name in blocks[-1]["counters"]:
            skipped.append(Skipped(line, f"the counter {name} stands here again"))
        else:
            blocks[-1]["counters"][name] = int(count)
    blocks = [block for block in blocks if block["counters"]]
    if not blocks:
        raise foreign("ethtool-statistics", "line with a counter and its value")
    return Extract({"blocks": blocks}, skipped)


def parse_ethtool(text: str) -> Extract:
    """Speed, duplex and link of network interfaces, of ethtool without options.

    `interfaces`: `interface`, `speed_bits_per_s` (null for `Unknown!` and where there is no link),
    `duplex`, `port`, `link` (whether one is detected), `autonegotiation`, and all `settings` as
    printed; one that goes on over several lines is a list.

    Raises:
        ParseError: there is no line `Settings for`.
    """
    interfaces: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    settings: dict[str, Any] = {}
    last: str | None = None
    for line, row in ended(text, skipped):
        word = row.strip()
        if heading := _SETTINGS.fullmatch(word):
            settings, last = {}, None
            interfaces.append({"interface": heading[1], "settings": settings})
        elif word.startswith("Cannot get "):
            skipped.append(Skipped(line, "a setting that this user may not read"))
        elif interfaces and (found := _SETTING.fullmatch(word)) and key(found[1]):
            last = key(found[1])
            settings[last] = found[2]
        elif last and row[:1].isspace():
            before = settings[last]
            settings[last] = [*before, word] if isinstance(before, list) else [before, word]
        else:
            skipped.append(Skipped(line, "no setting"))
    if not interfaces:
        raise foreign("ethtool", "line such as Settings for eth0:")
    return Extract({"interfaces": [_finished(one) for one in interfaces]}, skipped)


def _finished(interface: dict[str, Any]) -> dict[str, Any]:
    settings = interface["settings"]
    speed, duplex, port = (_text(settings.get(name)) for name in ("speed", "duplex", "port"))
    return {
        "interface": interface["interface"],
        "speed_bits_per_s": read_rate(speed) if speed else None,
        "duplex": None if duplex is None or "Unknown" in duplex else duplex,
        "port": port,
        "link": _flag(settings.get("link_detected")),
        "autonegotiation": _flag(settings.get("auto_negotiation")),
        "settings": settings,
    }


def _flag(setting: Any) -> bool | None:
    """Return what a setting says first: newer versions add a reason, `no (No cable)`."""
    return _YES_NO.get((_text(setting) or "").partition(" ")[0])


def _text(setting: Any) -> str | None:
    return setting if isinstance(setting, str) else None
