"""The part of a node's state that comes and goes: cards, containers, network, listening ports."""

import os
import socket
import struct
from typing import Any, Dict, List

from .facts_host import NET_ROOT, addresses
from .facts_software import CARD_STATE_TOOLS, cards, containers
from .ident import read_stat
from .probe import list_folder, read_file
from .proc_sampler import parse_net_dev

LISTENING = "0A"
COUNTERS = (
    "rx_bytes",
    "rx_packets",
    "rx_errs",
    "rx_drop",
    "tx_bytes",
    "tx_packets",
    "tx_errs",
    "tx_drop",
)


def decode_address(text: str) -> str:
    """Decode an address of /proc/net/tcp or tcp6: hex of 32-bit words in the machine's order."""
    data = bytes.fromhex(text)
    words = struct.unpack(">%dI" % (len(data) // 4), data)
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))


def parse_listening(text: str) -> List[Dict[str, Any]]:
    """Parse /proc/net/tcp or tcp6 into `{"address", "port", "uid", "inode"}` of listeners."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 10 and fields[3] == LISTENING:
            address, _colon, port = fields[1].rpartition(":")
            found.append(
                {
                    "address": decode_address(address),
                    "port": int(port, 16),
                    "uid": int(fields[7]),
                    "inode": int(fields[9]),
                }
            )
    return found


def socket_owners(inodes: List[int]) -> Dict[int, int]:
    """Return {inode: pid} for the sockets of processes that this user may look into."""
    wanted = {"socket:[%d]" % inode: inode for inode in inodes}
    found: Dict[int, int] = {}
    for pid in list_folder("/proc"):
        if not pid.isdigit():
            continue
        folder = "/proc/%s/fd" % pid
        for name in list_folder(folder):
            try:
                inode = wanted.get(os.readlink(os.path.join(folder, name)))
            except OSError:
                continue
            if inode is not None:
                found.setdefault(inode, int(pid))
    return found


def listening() -> List[Dict[str, Any]]:
    """Return the listening TCP sockets with owner; pid and comm are null where it is not seen."""
    rows = [
        row
        for name in ("tcp", "tcp6")
        for row in parse_listening(read_file("/proc/net/" + name) or "")
    ]
    owners = socket_owners([row["inode"] for row in rows])
    for row in rows:
        row["pid"] = owners.get(row["inode"])
        stat = None if row["pid"] is None else read_stat(row["pid"])
        row["comm"] = stat.comm if stat else None
    return sorted(rows, key=lambda row: (row["port"], row["address"]))


def network() -> Dict[str, Any]:
    """Return state, addresses and counters of each interface."""
    known = addresses()
    counters = parse_net_dev(read_file("/proc/net/dev") or "")
    interfaces = {
        name: {
            "operstate": read_file(os.path.join(NET_ROOT, name, "operstate")),
            "addresses": known.get("interfaces", {}).get(name),
            "counters": dict(zip(COUNTERS, values)),  # noqa: B905 - strict= is newer than 3.8
        }
        for name, values in counters.items()
    }
    found: Dict[str, Any] = {"interfaces": interfaces, "listening": listening()}
    if "error" in known:
        found["addresses_error"] = known["error"]
    return found


def state() -> Dict[str, Any]:
    """Return `{"cards", "containers", "network"}` as they are now."""
    return {
        "cards": cards(CARD_STATE_TOOLS),
        "containers": containers(),
        "network": network(),
    }
