"""What single messages of NCCL say."""

import re
from typing import Any

from servemap.parsers.communication.nccl_line import NcclLine
from servemap.parsers.communication.nccl_paths import read_link, tells_link
from servemap.parsers.communication.nccl_state import Algorithm, Log, Owner

_VERSION = re.compile(r"(NCCL|RCCL) version\s?:?\s{0,3}(\d[\w.+:-]{0,99})")
_INIT = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,20}) rank (?P<rank>\d{1,7}) nranks (?P<ranks>\d{1,7})"
    r" cudaDev (?P<device>\d{1,4})(?: nvmlDev \d{1,4})?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?: commId (?P<id>0x[0-9a-f]{1,20}))?.{0,100}? - Init (?P<state>START|COMPLETE)"
)
_NODES = re.compile(
    r"comm (0x[0-9a-f]{1,20}) rank \d{1,7} nRanks (\d{1,7}) nNodes (\d{1,6}) localRanks .{0,99}"
)
_USING_NETWORK = re.compile(r"Using (?:internal )?[Nn]etwork (\S.{0,60})")
_NETWORK = re.compile(r"NET/(\w{1,40})\b ?:? ?(.{0,4000})")
_DEVICE = re.compile(r"\[(\d{1,4})\]([^\s:\[\]]{1,64}):(\S{1,80})")
# Before 2.4 and since 2.27 one message a device.
_ONE_DEVICE = re.compile(r"\[(\d{1,4})\] ([^\s:]{1,64}):(?:uverbs\d{1,4}:)?(\d{1,4})/(\w{1,20})")
# Since 2.21 connections name virtual devices, each of one or several real ones.
_VIRTUAL = re.compile(r"Made virtual device \[(\d{1,4})\] name=([^\s]{1,99})")
_OOB = re.compile(r"OOB ([^\s:]{1,64}):(\S{1,80})")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[\d{1,4}\])?([^\s:]{1,64}):(\S{1,80})")
_GPU_DIRECT = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for "
    r"(?:HCA \d{1,4} '([^']{1,99})'|(GPU \w{1,16}(?:\[\w{1,16}\])? / HCA \d{1,4}))"
)
_PLUGIN = re.compile(
    r"(?:Initializing (aws-ofi-nccl \S{1,40})|Loaded net plugin (\S{1,60}(?: \(v\d{1,3}\))?)"
    r"|Selected [Pp]rovider is (\S{1,40}))"
)
_ENVIRONMENT = re.compile(r"([A-Z][A-Z0-9_]{1,60}) set by environment to ?(.{0,300})")
_SET_BY_PLUGIN = re.compile(r"Setting ([A-Z][A-Z0-9_]{1,60}) environment variable to (\S{1,300})")
_COUNTS = re.compile(
    r"(\d{1,5}) coll channels, (?:(\d{1,5}) collnet channels, )?(?:(\d{1,5}) nvls channels, )?"
    r"(\d{1,5}) p2p channels, (\d{1,5}) p2p channels per peer"
)
CHANNELS = ("collective", "collnet", "nvls", "p2p", "p2p_per_peer")
_RING_FLAGS = re.compile(r"Connected all rings, use ring PXN (\d) GDR (\d)")
_ORDER = re.compile(r"Channel (\d{1,4})/\d{1,4} ?:([ \d]{1,40000})")
_RING = re.compile(r"Ring (\d{1,4}) ?: (-?\d{1,7}) -> (\d{1,7}) -> (-?\d{1,7})")
_TREE = re.compile(r"\[(\d{1,4})\] ((?:-?\d{1,7}/){2}-?\d{1,7})->(\d{1,7})->(-?\d{1,7})(?![\d/])")
_ALGORITHM = re.compile(
    r"(?:(\w{1,40}): )?(\d{1,20}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\}| time \S{1,40})?"
)
# Numbers that all versions share (src/include/plugin/nccl_tuner.h); later ones changed.
_ALGORITHMS = {"0": "TREE", "1": "RING"}
_PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}
_ERROR = re.compile(r"(\S{1,200}:\d{1,7}) -> (\d{1,3})(?: \[.{0,60}\])?")
# ncclResult_t of nccl.h.
_RESULTS = {
    1: "ncclUnhandledCudaError", 2: "ncclSystemError", 3: "ncclInternalError",
    4: "ncclInvalidArgument", 5: "ncclInvalidUsage", 6: "ncclRemoteError", 7: "ncclInProgress",
    8: "ncclTimeout",
}  # fmt: skip


def read_version(log: Log, line: str) -> bool:
    """Read a line that gives the version, with or without the head of a message."""
    found = _VERSION.search(line) if " version" in line else None
    if found is None:
        return False
    log.library = log.library or found[1]
    log.versions[found[2]] = None
    return True


def read_message(log: Log, entry: NcclLine, line: int) -> bool:
    """Gather what a message says; return False if it tells of a connection and is broken."""
    log.messages += 1
    message = entry.message
    if entry.host:
        log.hosts.add(entry.host)
    if entry.level == "WARN":
        log.warnings.append(
            {
                "line": line, "host": entry.host, "pid": entry.pid, "device": entry.device,
                "place": entry.place, "text": message[:300],
            }
        )  # fmt: skip
        return True
    # Every call is logged so (COLL, millions of lines); nothing in them is wanted.
    if ": opCount " in message:
        return True
    if message.startswith(("Channel ", "Ring ", "CollNet ")) and _read_channel(log, entry, message):
        return True
    # At TRACE the receiver of P2P names the connection once more.
    if entry.level == "INFO" and tells_link(message):
        log.unread.append(message)
        return False
    if message.startswith("Trees"):
        _read_trees(log, message)
    elif message.startswith(("NET/", "Bootstrap")):
        _read_network(log, entry, message)
    elif "Bytes -> Algo" in message:
        _read_algorithm(log, message)
    elif " - Init " in message:
        _read_init(log, entry, message)
    elif " nNodes " in message:
        _read_nodes(log, entry, message)
    elif " -> " in message:
        _read_error(log, message, line)
    elif " environment " in message:
        _read_environment(log, message)
    elif message.startswith("Using ") and (found := _USING_NETWORK.match(message)):
        log.networks_used[found[1].strip()] = None
    elif " coll channels" in message and (found := _COUNTS.match(message)):
        log.channels[tuple(None if n is None else int(n) for n in found.groups())] = None
    elif message.startswith("Connected all rings") and (found := _RING_FLAGS.match(message)):
        log.ring_flags[int(found[1]), int(found[2])] = None
    else:
        read_version(log, message)
    return True


def _read_channel(log: Log, entry: NcclLine, message: str) -> bool:
    if link := read_link(message):
        log.links.append(link._replace(host=entry.host, pid=entry.pid))
        if entry.host:
            row = log.rank(link.own_rank, entry.host)
            row["pid"] = entry.pid
            row["device"] = entry.device if row["device"] is None else row["device"]
            process = log.process(entry.host, entry.pid, entry.device)
            process.ranks.add((0, link.own_rank))
            if link.device is not None:
                row["net_devices"].add(link.device)
                process.network_devices.add((link.path.partition("/")[2], link.device))
    elif found := _ORDER.fullmatch(message):
        log.ring_orders.setdefault(found[1], [int(rank) for rank in found[2].split()])
    elif found := _RING.fullmatch(message):
        channel, before, rank, after = map(int, found.groups())
        log.rings[rank, channel] = {
            "rank": rank, "channel": channel, "previous": before, "next": after,
        }  # fmt: skip
    else:
        return False
    return True


def _read_trees(log: Log, message: str) -> None:
    for found in _TREE.finditer(message):
        channel, rank, parent = int(found[1]), int(found[3]), int(found[4])
        children = [int(child) for child in found[2].split("/") if child != "-1"]
        log.trees[rank, channel] = {
            "rank": rank, "channel": channel, "parent": None if parent < 0 else parent,
            "children": children,
        }  # fmt: skip


def _read_network(log: Log, entry: NcclLine, message: str) -> None:
    owner = (entry.host, entry.pid)
    if found := _BOOTSTRAP.match(message):
        _out_of_band(log, found)
    elif (found := _NETWORK.match(message)) and found[1] != "Plugin":
        network, rest = found[1], found[2]
        log.networks_seen[network] = None
        if rest.startswith("Using ["):
            for index, name, end in _DEVICE.findall(rest.partition(";")[0]):
                port, _, layer = end.rpartition("/")
                device: dict[str, Any] = {"network": network, "index": int(index), "name": name}
                if port:
                    device |= {"port": int(port) if port.isdecimal() else port, "link_layer": layer}
                else:
                    device["address"] = end
                _add_device(log, owner, device)
            if oob := _OOB.search(rest):
                _out_of_band(log, oob)
        elif direct := _GPU_DIRECT.match(rest):
            log.gpu_direct[direct[2] or direct[3]] = direct[1] == "Enabled"
        elif virtual := _VIRTUAL.match(rest):
            names = log.virtual.setdefault(owner, {})
            names.setdefault((network, int(virtual[1])), set()).add(virtual[2])
        elif one := _ONE_DEVICE.match(rest):
            index, name, at, layer = one.groups()
            device = {"network": network, "index": int(index), "name": name}
            device |= {"port": int(at), "link_layer": layer}
            _add_device(log, owner, device)
    if plugin := _PLUGIN.search(message):
        log.plugins[next(filter(None, plugin.groups()))] = None


def _add_device(log: Log, owner: Owner, device: dict[str, Any]) -> None:
    network, index, name = device["network"], device["index"], device["name"]
    log.devices.setdefault((network, index, name), device)
    log.named.setdefault(owner, {}).setdefault((network, index), set()).add(name)


def _out_of_band(log: Log, found: re.Match[str]) -> None:
    log.out_of_band[found[1], found[2].partition("<")[0]] = None


def _read_algorithm(log: Log, message: str) -> None:
    if found := _ALGORITHM.fullmatch(message):
        name, size, algorithm, protocol, low, high = found.groups()
        key = Algorithm(
            collective=name,
            size_bytes=int(size),
            algorithm=_ALGORITHMS.get(algorithm, algorithm),
            protocol=_PROTOCOLS.get(protocol, protocol),
            channels=int(high) - int(low) + 1 if low else None,
        )
        log.algorithms[key] = log.algorithms.get(key, 0) + 1


def _read_error(log: Log, message: str, line: int) -> None:
    if found := _ERROR.fullmatch(message):
        code = int(found[2])
        log.error_codes.append(
            {"line": line, "place": found[1], "code": code, "name": _RESULTS.get(code)}
        )


def _read_init(log: Log, entry: NcclLine, message: str) -> None:
    found = _INIT.search(message)
    # Ranks are counted from 0; another number was broken by a second writer.
    if found is None or int(found["rank"]) >= int(found["ranks"]):
        return
    key = (found["id"], int(found["ranks"]))
    log.pointers[entry.pid, found["comm"]] = key
    communicator = log.communicator(key)
    communicator["completed"] += found["state"] == "COMPLETE"
    if entry.host:
        row = log.rank(int(found["rank"]), entry.host)
        row |= {"pid": entry.pid, "device": int(found["device"]), "bus_id": found["bus"]}
        process = log.process(entry.host, entry.pid, entry.device)
        process.bus_id = process.bus_id or found["bus"]
        process.ranks.add((key[1], int(found["rank"])))
        process.members.add((*key, int(found["rank"])))


def _read_nodes(log: Log, entry: NcclLine, message: str) -> None:
    if found := _NODES.fullmatch(message):
        key = log.pointers.get((entry.pid, found[1]), (None, int(found[2])))
        log.communicator(key)["nodes"] = int(found[3])


def _read_environment(log: Log, message: str) -> None:
    if found := _ENVIRONMENT.match(message):
        log.environment.setdefault(found[1], {})[found[2].rstrip(".")] = None
    elif found := _SET_BY_PLUGIN.search(message):
        log.environment.setdefault(found[1], {})[found[2]] = None
