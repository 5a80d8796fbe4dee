"""The campaign's nodes side by side, with how far each one's clock was from the head's."""

from typing import Any

from servemap.parsers.values import integer, mapping, sequence, text
from servemap.report.document import Cell, cell
from servemap.report.run import Run

NODE_COLUMNS = [
    "Node",
    "Role",
    "Reached by",
    "Address",
    "Rails",
    "Frozen facts",
    "Clock ahead of the head ms",
    "Known to ms",
    "Largest drift in a case ms",
    "Cases in which it was set",
]
NODE_NOTE = (
    "Nodes. Clocks are measured at the start and at the end of every case; the first two figures "
    "are of the newest one. Times of all nodes are shown on the head's clock"
)


def node_rows(run: Run) -> list[list[Cell]]:
    """Return one row a node, of the campaign or named by any record of the run."""
    declared = {
        str(node.get("id")): node for node in map(mapping, sequence(run.campaign.get("nodes")))
    }
    clocks = _clocks(run)
    return [
        [
            Cell(name),
            cell(text(declared.get(name, {}).get("role"))),
            cell(text(declared.get(name, {}).get("transport"))),
            cell(text(declared.get(name, {}).get("address"))),
            cell(_rails(declared.get(name, {}))),
            Cell("yes") if name in run.freezes else Cell("none", tone="warn"),
            *_clock_cells(clocks.get(name, [])),
        ]
        for name in dict.fromkeys([*declared, *run.freezes, *clocks])
    ]


def _rails(node: dict[str, Any]) -> str:
    """Return the declared rails: the interface, with its RDMA device."""
    rails = [mapping(rail) for rail in sequence(node.get("rails"))]
    return ", ".join(
        f"{rail.get('netdev')} ({rail['hca']})" if rail.get("hca") else str(rail.get("netdev"))
        for rail in rails
    )


def _clocks(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return every node's clock records, oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    by_time = sorted(run.repeats, key=lambda repeat: integer(repeat.meta.get("ended_ns")) or 0)
    for repeat in by_time:
        for name, record in mapping(repeat.meta.get("clock")).items():
            found.setdefault(name, []).append(mapping(record))
    return found


def _clock_cells(records: list[dict[str, Any]]) -> list[Cell]:
    if not records:
        return [cell(None)] * 4
    newest = records[-1]
    drifts = [
        abs(drift - (integer(record.get("step_ns")) or 0))
        for record in records
        if (drift := integer(record.get("drift_ns"))) is not None
    ]
    steps = sum(bool(integer(record.get("set_ns"))) for record in records)
    return [
        Cell(_ms(integer(newest.get("offset_ns")))),
        Cell(_ms(integer(newest.get("error_ns")))),
        Cell(_ms(max(drifts, default=None))),
        Cell(str(steps), tone="warn" if steps else ""),
    ]


def _ms(value_ns: int | None) -> str:
    # Adding 0.0 makes 0.00 of -0.00.
    return "-" if value_ns is None else f"{round(value_ns / 1e6, 2) + 0.0:,.2f}"
