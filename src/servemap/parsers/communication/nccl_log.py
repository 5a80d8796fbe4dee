"""The log of NCCL or RCCL (NCCL_DEBUG=INFO): which path the data of a communicator take."""

from collections.abc import Sequence
from typing import Any

from servemap.parsers.communication.nccl_findings import finding_of, may_be_finding
from servemap.parsers.communication.nccl_line import (
    NcclLine,
    nccl_lines,
    plain_line,
    separated,
    untag,
)
from servemap.parsers.communication.nccl_messages import CHANNELS, read_message, read_version
from servemap.parsers.communication.nccl_paths import summarised, tells_link
from servemap.parsers.communication.nccl_state import Log
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_LONGEST_TEXT = 300


def parse_nccl_log(text: str) -> Extract:
    """Paths, rings, devices and failures that NCCL or RCCL logs.

    `library` and `versions`; `hosts` that wrote lines; `launcher_labels` (ranks or pods that a
    launcher wrote before lines); `ranks` (`rank`, `host`, `pid`, `device`, `bus_id`, the network
    devices that it uses); `communicators` (`id`, null in old logs; `ranks`; `nodes`, null where
    the log does not say; how many ranks `completed` their initialisation); `network`: `used` (as
    NCCL says it chose), `seen` (all that are named), `devices`, `out_of_band`,
    `gpu_direct_rdma` per device, `plugins`.

    `paths` sums up the connections by `scope`, `path` (`P2P/CUMEM`, `SHM/direct`, `NET/IB`) and
    `gdrdma`, with the network devices in use (indexes, and the names that hosts gave them);
    `intra_node` and `inter_node` list the paths of each scope, and `gdrdma_used` is null where no
    connection goes over a network, whatever `ring_flags` say. `channels` as NCCL counts them,
    `rings`, `ring_orders`, `trees`, `algorithms` (collective, size, algorithm, protocol and how
    often), `environment` (variables that NCCL read, all values seen), `warnings`, `error_codes`,
    `findings` (classes of nccl_findings.yaml; `attempt` counts the restarts before one).

    Raises:
        ParseError: no line is of NCCL.
    """
    skipped: list[Skipped] = []
    log = read_log(text, skipped)
    if not log.messages and not log.versions and not log.findings:
        raise foreign(
            "nccl-log", "line with NCCL INFO or NCCL WARN", "set NCCL_DEBUG=INFO where it runs"
        )
    return Extract(_data(log), skipped)


def read_log(text: str, skipped: list[Skipped]) -> Log:
    """Return what a cleaned text holds of NCCL, nothing if need be; add to `skipped` what is not.

    Raises nothing.
    """
    log = Log()
    attempt = 0
    for line, row in ended(text, skipped):
        if plain := plain_line(row):
            label, rest, messages = plain[0], row, [plain[1]]
        else:
            label, rest = untag(row)
            messages = separated(nccl_lines(rest), log.hosts)
            attempt += "exited with code" in rest
        if label:
            log.labels[label] = None
        if tells_link(outside := outside_messages(rest, messages)):
            log.unread.append(outside)
        for message in messages:
            if not read_message(log, message, line):
                skipped.append(Skipped(line, "a broken line that tells of a connection"))
        if plain and not may_be_finding(plain[1].message):
            continue
        if found := finding_of(rest):
            said = rest.strip()[:_LONGEST_TEXT]
            log.findings.append({"class": found, "line": line, "attempt": attempt, "text": said})
        elif not messages and not read_version(log, rest):
            skipped.append(Skipped(line, "no line of NCCL"))
    last = text.rpartition("\n")[2]
    if tells_link(last):
        log.unread.append(last)
    return log


def outside_messages(line: str, messages: Sequence[NcclLine]) -> str:
    """Return what stands in a line before its messages of NCCL, or all of it without any."""
    return messages[0].lead if messages else line


def _data(log: Log) -> dict[str, Any]:
    paths = summarised(log.links, log.known_hosts(), log.link_device_name)
    over_network = [path["gdrdma"] for path in paths if path["gdrdma"] is not None]
    return {
        "library": log.library,
        "versions": list(log.versions),
        "hosts": sorted(log.hosts),
        "launcher_labels": list(log.labels),
        "ranks": log.rank_table(),
        "communicators": list(log.communicators.values()),
        "network": {
            "used": list(log.networks_used),
            "seen": list(log.networks_seen),
            "devices": list(log.devices.values()),
            "out_of_band": [
                {"interface": name, "address": address} for name, address in log.out_of_band
            ],
            "gpu_direct_rdma": log.gpu_direct,
            "plugins": list(log.plugins),
        },
        "paths": paths,
        "intra_node": sorted({path["path"] for path in paths if path["scope"] == "intra_node"}),
        "inter_node": sorted({path["path"] for path in paths if path["scope"] == "inter_node"}),
        "gdrdma_used": any(over_network) if over_network else None,
        "channels": [dict(zip(CHANNELS, counts, strict=True)) for counts in log.channels],
        "ring_flags": [{"pxn": pxn, "gdr": gdr} for pxn, gdr in log.ring_flags],
        "ring_orders": log.ring_orders,
        "rings": list(log.rings.values()),
        "trees": list(log.trees.values()),
        "algorithms": [{**key._asdict(), "times": times} for key, times in log.algorithms.items()],
        "environment": {name: list(values) for name, values in log.environment.items()},
        "warnings": log.warnings,
        "error_codes": log.error_codes,
        "findings": log.findings,
    }
