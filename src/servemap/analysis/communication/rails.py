"""Bus bandwidth of collectives across nodes beside the line rates of the rails they went over."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from servemap.analysis.bounds.known import NotKnownError
from servemap.parsers.network.link_rate import read_rate
from servemap.parsers.values import integer, mapping, number, sequence, text

COLUMNS = (
    *("baseline", "settings", "nodes", "operation", "size_bytes", "busbw_bytes_per_s"),
    *("algorithm", "protocol", "channels", "rails", "rails_bytes_per_s", "share"),
    *("simulated", "not_known"),
)

Row = dict[str, Any]
Facts = Mapping[str, Mapping[str, Any]]


class Rails(NamedTuple):
    """The network devices that a part used, and their line rates together, one direction."""

    devices: tuple[str, ...]
    bytes_per_s: float


def rail_rows(baselines: Mapping[str, Mapping[str, Any]], facts: Facts) -> list[Row]:
    """Return the rows of tables/baseline_limits.csv; what is not known is None, with the reason.

    The limit is the sum of the rails of the node that has the least. All data that leave a node in
    a ring pass its rails once, so busbw is at most that; a tree or a reduction within the network
    sends less, so the algorithm stands beside the share.

    Args:
        baselines: records by name.
        facts: frozen facts by node.
    """
    rows = []
    for name, record in baselines.items():
        for part in map(mapping, sequence(record.get("results"))):
            if record.get("kind") != "collective" or len(sequence(part.get("nodes"))) < 2:
                continue
            try:
                rails, reason = rails_of(part, facts), ""
            except NotKnownError as error:
                rails, reason = None, str(error)
            for row in map(mapping, sequence(part.get("rows"))):
                rows.append(_row(name, record, part, row, rails, reason))
    return rows


def most_used(rows: Iterable[Row]) -> list[Row]:
    """Return of each baseline, part and operation the row with the highest busbw."""
    best: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = (row["baseline"], row["settings"], row["operation"])
        if key not in best or (row["busbw_bytes_per_s"] or 0) > (
            best[key]["busbw_bytes_per_s"] or 0
        ):
            best[key] = row
    return list(best.values())


def rails_of(part: Mapping[str, Any], facts: Facts) -> Rails:
    """Return the devices between a part's nodes, and the least sum of their rates.

    They are those that NCCL's log names, or the interface that each rank says it uses.

    Raises:
        NotKnownError: a node's devices, one of them or their rates are not known.
    """
    seen = mapping(part.get("transport"))
    hidden = [*sequence(seen.get("unread")), *sequence(seen.get("missing"))]
    if hidden:
        raise NotKnownError(f"NCCL's log may hide network devices: {hidden[0]}")
    found = {node: _devices(part, node) for node in map(str, sequence(part.get("nodes")))}
    sums = {}
    for node, devices in found.items():
        if not devices:
            raise NotKnownError(f"{node} does not say over which network devices its data went")
        sums[node] = sum(_rate(node, device, mapping(facts.get(node))) for device in devices)
    node = min(sums, key=lambda name: sums[name])
    return Rails(tuple(found[node]), sums[node])


def _devices(part: Mapping[str, Any], node: str) -> list[str]:
    paths = [
        path
        for path in map(mapping, sequence(mapping(part.get("transport")).get("paths")))
        if path.get("node") == node and path.get("scope") == "inter_node"
    ]
    unnamed = {str(index) for path in paths for index in sequence(path.get("unnamed"))}
    if unnamed:
        numbers = ", ".join(sorted(unnamed))
        raise NotKnownError(f"{node}: NCCL's log has no name for network device {numbers}")
    named = {str(device) for path in paths for device in sequence(path.get("devices"))}
    ranks = map(mapping, sequence(part.get("ranks")))
    told = {text(rank.get("interface")) for rank in ranks if rank.get("node") == node}
    return sorted(named or {name for name in told if name})


def _rate(node: str, device: str, facts: Mapping[str, Any]) -> float:
    """Return bytes/s of one direction of an HCA's active port, or of an interface."""
    nics = mapping(facts.get("nics"))
    if device in mapping(nics.get("rdma")):
        ports = mapping(mapping(nics["rdma"][device]).get("ports")).values()
        active = [
            rate
            for port in map(mapping, ports)
            if (text(port.get("state")) or "").endswith("ACTIVE")
            and (rate := read_rate(text(port.get("rate")) or "")) is not None
        ]
        if len(active) == 1:
            return active[0] / 8
        raise NotKnownError(f"{node}: {device} has {len(active)} active ports with a rate")
    speed = integer(mapping(mapping(nics.get("interfaces")).get(device)).get("speed_mbit"))
    if speed is None or speed <= 0:
        raise NotKnownError(f"{node}: the frozen facts have no rate of {device}")
    return speed * 1e6 / 8


def _row(
    name: str,
    record: Mapping[str, Any],
    part: Mapping[str, Any],
    row: Mapping[str, Any],
    rails: Rails | None,
    reason: str,
) -> Row:
    busbw = number(row.get("busbw_bytes_per_s"))
    settings = mapping(part.get("settings")).items()
    return {
        "baseline": name,
        "settings": " ".join(f"{key}={value}" for key, value in settings),
        "nodes": " ".join(map(str, sequence(part.get("nodes")))),
        "operation": row.get("operation"),
        "size_bytes": row.get("size_bytes"),
        "busbw_bytes_per_s": busbw,
        "algorithm": row.get("algorithm"),
        "protocol": row.get("protocol"),
        "channels": row.get("channels"),
        "rails": rails and " ".join(rails.devices),
        "rails_bytes_per_s": rails and rails.bytes_per_s,
        "share": busbw / rails.bytes_per_s if rails and busbw is not None else None,
        "simulated": bool(record.get("simulated")),
        "not_known": reason,
    }
