"""show_gids: the GIDs of RoCE and InfiniBand ports, and which of them RoCE v2 uses with IPv4."""

import re
from typing import Any

from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_GID = re.compile(
    r"(?P<device>[\w.-]{1,64})\s+(?P<port>\d{1,4})\s+(?P<index>\d{1,6})\s+"
    r"(?P<gid>[0-9a-fA-F:]{2,45})(?:\s+(?P<ipv4>\d{1,3}(?:\.\d{1,3}){3}))?"
    r"(?:\s+(?P<version>v[12]|IB|ib|RoCE ?v[12]))?(?:\s+(?P<netdev>[A-Za-z]\S{0,63}))?"
)
_HEADING = re.compile(r"(?:DEV|---)\s.*")
_COUNT = re.compile(r"n_gids_found=(\d{1,7})")


def parse_show_gids(text: str) -> Extract:
    """GIDs by device, port and index.

    `gids`: `device`, `port`, `index`, `gid`, `ipv4` (null on rows of link-local addresses),
    `version` (`v1`, `v2`), `netdev`. `roce_v2_ipv4`: the first `index` of each port that is of RoCE
    v2 and has an IPv4 address, the one for NCCL_IB_GID_INDEX. `announced`: how many the tool says
    it found, null where the end is missing.

    Raises:
        ParseError: there is no GID, and no line that says there are none.
    """
    gids: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    announced: int | None = None
    for line, row in ended(text, skipped):
        word = row.strip()
        if (found := _GID.fullmatch(word)) and ":" in found["gid"]:
            ports = {name: int(found[name]) for name in ("port", "index")}
            gids.append({**found.groupdict(), **ports})
        elif count := _COUNT.fullmatch(word):
            announced = int(count[1])
        elif not _HEADING.fullmatch(word):
            skipped.append(Skipped(line, "no GID, or cut"))
    if not gids and announced is None:
        raise foreign("show-gids", "row with a device, a port, an index and a GID")
    usable: dict[tuple[str, int], int] = {}
    for gid in gids:
        if gid["ipv4"] and (gid["version"] or "").endswith("v2"):
            usable.setdefault((gid["device"], gid["port"]), gid["index"])
    return Extract(
        {
            "gids": gids,
            "roce_v2_ipv4": [
                {"device": device, "port": port, "index": index}
                for (device, port), index in usable.items()
            ],
            "announced": announced,
        },
        skipped,
    )
