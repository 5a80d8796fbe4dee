"""Tables on communication baselines: pairs of cards, ranks and their places, busbw beside rails."""

from collections.abc import Mapping
from typing import Any

from servemap.analysis.communication.pairs import (
    SLOW_SHARE,
    UNEQUAL_SHARE,
    figures,
    pairs_of,
    without_effect,
)
from servemap.analysis.communication.rails import most_used, rail_rows
from servemap.analysis.communication.ranks import rank_places
from servemap.parsers.values import mapping, sequence, text
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.numbers import MISSING, percent, plain, size
from servemap.report.reasons import reason_cell, reasons_of
from servemap.report.run import Run

MAX_NAMED = 8
RAILS_NOTE = (
    "Baselines between nodes: of each operation the size with the highest busbw, beside the line "
    "rates of the rails that it went over, together and in one direction; every size: "
    "tables/baseline_limits.csv. In a ring every byte passes the rails once; a tree or a network "
    "that reduces needs less, so its share may be above 100 %."
)
PAIRS_NOTE = (
    f"Copies between two cards, without those within one. Slow: below {SLOW_SHARE:.0%} of the "
    f"median; unequal: one way below {UNEQUAL_SHARE:.0%} of the other."
)


def section(run: Run) -> Section | None:
    """Return the tables of cards and ranks; None where there is none."""
    tables = [table for table in (pairs_table(run), ranks_table(run)) if table is not None]
    if not tables:
        return None
    return Section("communication", "Cards and ranks of baselines", tables=tables)


def rails_table(run: Run) -> Table | None:
    """Return busbw between nodes beside the rails; None where there is none."""
    facts = {node: mapping(record.get("facts")) for node, record in run.freezes.items()}
    found = most_used(rail_rows(run.baselines, facts))
    if not found:
        return None
    columns = ["Baseline", "Setting", "Operation", "Size", "busbw GB/s", "Algorithm", "Channels",
               "Rails", "Sum GB/s", "Of the rails"]  # fmt: skip
    rows = []
    for row in found:
        known = row["rails_bytes_per_s"] is not None
        chosen = "/".join(filter(None, (row["algorithm"], row["protocol"]))) or None
        rows.append(
            [
                _label(row["baseline"], row["simulated"]),
                cell(row["settings"] or None),
                cell(row["operation"]),
                Cell(size(row["size_bytes"])),
                Cell(_gb_s(row["busbw_bytes_per_s"])),
                Cell(chosen) if chosen else Cell("not told", tone="muted"),
                cell(row["channels"]),
                cell(row["rails"]) if known else Cell("not known", row["not_known"], "muted"),
                Cell(_gb_s(row["rails_bytes_per_s"])) if known else Cell(MISSING),
                Cell(percent(row["share"])) if known else Cell(MISSING),
            ]
        )
    numeric = frozenset({"busbw GB/s", "Channels", "Sum GB/s", "Of the rails"})
    return Table(columns, rows, numeric, "Collectives between nodes beside their rails")


def pairs_table(run: Run) -> Table | None:
    """Return the spread of copies between cards by node and matrix; None where there is none."""
    rows = []
    for name, record in run.baselines.items():
        if record.get("kind") != "copies":
            continue
        for result in map(mapping, sequence(record.get("results"))):
            if result.get("status") != "ok":
                rows.append(_failed(name, record, result))
            matrices = [mapping(one) for one in sequence(result.get("matrices"))]
            for matrix in matrices:
                rows += _pairs(name, record, result, matrix, without_effect(matrices))
        if not sequence(record.get("results")):
            rows.append(_failed(name, record, {}))
    columns = ["Baseline", "Node", "Copies", "Pairs", "Min GB/s", "Median GB/s", "Max GB/s",
               "Slow", "Unequal"]  # fmt: skip
    return Table(columns, rows, frozenset(columns[3:7]), PAIRS_NOTE) if rows else None


def _pairs(
    name: str,
    record: dict[str, Any],
    result: dict[str, Any],
    matrix: dict[str, Any],
    no_effect: bool | None,
) -> list[list[Cell]]:
    found = figures(pairs_of(matrix))
    if found is None:
        return []
    said = str(matrix.get("title") or matrix.get("description") or matrix.get("test") or "-")
    copies = Cell(said)
    if matrix.get("p2p") is True and no_effect:
        copies = Cell(said, "as fast as without peer access: it has no effect", "warn")
    return [
        [
            _label(name, bool(record.get("simulated"))),
            cell(", ".join(map(str, sequence(result.get("nodes")))) or None),
            copies,
            _measured(found.pairs, len(sequence(matrix.get("rows")))),
            *(Cell(_gb_s(rate)) for rate in (found.least, found.median, found.most)),
            _named(found.slow),
            _named(found.asymmetric),
        ]
    ]


def _measured(pairs: int, cards: int) -> Cell:
    """Return how many pairs have a rate, and of how many where some have none."""
    every = cards * (cards - 1)
    return cell(pairs) if pairs == every else Cell(f"{pairs} of {every}", tone="warn")


def _failed(name: str, record: dict[str, Any], result: dict[str, Any]) -> list[Cell]:
    """Return the row of a node that nothing was measured on, with the reason."""
    said = text(result.get("error"))
    return [
        _label(name, bool(record.get("simulated"))),
        cell(", ".join(map(str, sequence(result.get("nodes")))) or None),
        reason_cell([said]) if said else reasons_of(record),
        *(Cell(MISSING) for _ in range(6)),
    ]


def _named(pairs: tuple[tuple[str, str], ...]) -> Cell:
    """Return pairs as `0-1, 2-3`, the row's card first; the first ones of many."""
    if not pairs:
        return Cell("none", tone="good")
    more = len(pairs) - MAX_NAMED
    named = [f"{row}-{column}" for row, column in pairs[:MAX_NAMED]]
    return Cell(", ".join([*named, *([f"and {more} more"] if more > 0 else [])]), tone="warn")


def ranks_table(run: Run) -> Table | None:
    """Return where the ranks of collective baselines were, as NCCL or they and the facts say.

    Parts with the same ranks are one; None where none are named.
    """
    facts = {node: mapping(record.get("facts")) for node, record in run.freezes.items()}
    rows: list[list[Cell]] = []
    for name, record in run.baselines.items():
        seen: list[Any] = []
        for part in map(mapping, sequence(record.get("results"))):
            places = rank_places(_ranks(part), facts)
            if places and places not in seen:
                seen.append(places)
                label = _label(name, bool(record.get("simulated")))
                rows += [[label, *_rank(place)] for place in places]
    columns = ["Baseline", "Node", "Rank", "GPU", "Bus", "NUMA node", "Network devices (NUMA)"]
    return Table(columns, rows, frozenset(columns[2:4]), "Ranks of baselines") if rows else None


def _ranks(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ranks that NCCL's log names, else those that said who they are."""
    logged = sequence(mapping(part.get("transport")).get("ranks"))
    if logged:
        return [mapping(one) for one in logged]
    told = map(mapping, sequence(part.get("ranks")))
    return [{**one, "nics": list(filter(None, [one.get("interface")]))} for one in told]


def _rank(place: dict[str, Any]) -> list[Cell]:
    nics = [
        nic["name"] if nic["numa_node"] is None else f"{nic['name']} ({nic['numa_node']})"
        for nic in place["nics"]
    ]
    keys = ("node", "rank", "gpu", "bus_id", "numa_node")
    return [*(cell(place[key]) for key in keys), cell(", ".join(nics) or None)]


def _label(name: str, simulated: bool) -> Cell:
    return Cell(name, "simulated" if simulated else "")


def _gb_s(value: Any) -> str:
    return plain(None if value is None else value / 1e9)
