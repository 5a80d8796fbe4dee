"""The paths that NCCL connected in the first start of each variant, and its ranks."""

from typing import Any

from servemap.parsers.values import integer, mapping, sequence
from servemap.report.document import Cell, Table, cell
from servemap.report.run import Run

_SCOPES = {"intra_node": "within the node", "inter_node": "between nodes"}


def transport_tables(run: Run) -> list[Table]:
    """Return the table of paths and that of ranks; none where no log shows any."""
    paths: list[list[Cell]] = []
    ranks: list[list[Cell]] = []
    for variant, record in run.launches.items():
        seen = mapping(mapping(record.get("gate")).get("transport"))
        paths += [_path(variant, mapping(path)) for path in sequence(seen.get("paths"))]
        ranks += [_rank(variant, mapping(rank)) for rank in sequence(seen.get("ranks"))]
    tables = []
    if paths:
        tables.append(
            Table(
                ["Variant", "Node", "Where", "Path", "Over", "Connections", "Channels", "GDRDMA"],
                paths,
                frozenset({"Connections", "Channels"}),
                "Connections of NCCL by the server's own log",
            )
        )
    if ranks:
        tables.append(
            Table(
                ["Variant", "Node", "Rank", "GPU", "Bus", "Network devices", "Process"],
                ranks,
                frozenset({"Rank", "GPU"}),
                "Ranks of NCCL",
            )
        )
    return tables


def _path(variant: str, path: dict[str, Any]) -> list[Cell]:
    devices = [*sequence(path.get("devices"))]
    devices += [f"device {index}, not named" for index in sequence(path.get("unnamed"))]
    return [
        Cell(variant),
        cell(path.get("node")),
        cell(_SCOPES.get(str(path.get("scope")))),
        cell(path.get("path")),
        cell(", ".join(map(str, devices)) or None),
        cell(path.get("links")),
        cell(path.get("channels")),
        cell(_direct(path)),
    ]


def _direct(path: dict[str, Any]) -> str | None:
    """Return how many of the sends and receives over a network go straight to the card's memory."""
    if not str(path.get("path")).startswith(("NET/", "COLLNET/")):
        return None
    counts = [integer(path.get(key)) for key in ("gdr_send", "sends", "gdr_receive", "receives")]
    if None in counts:
        return None
    return "{} of {} sends, {} of {} receives".format(*counts)


def _rank(variant: str, rank: dict[str, Any]) -> list[Cell]:
    return [
        Cell(variant),
        cell(rank.get("node")),
        cell(rank.get("rank")),
        cell(rank.get("gpu")),
        cell(rank.get("bus_id")),
        cell(", ".join(map(str, sequence(rank.get("nics")))) or None),
        cell(rank.get("pid")),
    ]
