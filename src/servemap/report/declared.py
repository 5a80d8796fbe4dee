"""What the collectors tell that the campaign declares itself: a row for every series of theirs."""

from collections.abc import Sequence

from servemap.analysis.references import Measured
from servemap.analysis.repeats import Repeat
from servemap.analysis.telemetry_rows import SeriesRow, declared_of, state_of
from servemap.report.changes import figures_cell, shown
from servemap.report.document import MISSING, Cell, Table

MOST_ROWS = 60
_COLUMNS = [
    "Case",
    "Variant",
    "Segment",
    "Node",
    "Collector",
    "Entity",
    "Metric",
    "Figures",
    "Table",
]


def declared_rows(one: Measured) -> list[list[Cell]]:
    """Return the rows of a repeat; a collector that told nothing has one that says its state."""
    own = declared_of(one.repeat)
    rows = [row for row in shown(one) if row.figures.n and (row.node, row.collector) in own]
    told = {(row.node, row.collector) for row in one.rows if row.figures.n}
    return [
        *(_told(one.repeat, row) for row in rows),
        *(_silent(one.repeat, *key) for key in own if key not in told),
    ]


def declared_table(rows: Sequence[list[Cell]]) -> Table | None:
    """Return the table of some repeats' rows; None where a campaign declares no collector."""
    if not rows:
        return None
    left = len(rows) - MOST_ROWS
    caption = "Collectors of the campaign's own: mean / P95 / max inside the window" + (
        f"; {left} more rows are in the named tables" if left > 0 else ""
    )
    return Table(_COLUMNS, list(rows[:MOST_ROWS]), frozenset(["Figures"]), caption)


def _told(repeat: Repeat, row: SeriesRow) -> list[Cell]:
    return [
        *_whose(repeat),
        *map(Cell, (row.segment, row.node, row.collector, row.entity)),
        Cell(row.metric, row.unit),
        figures_cell(repeat, row),
        Cell(f"case_{row.family}_summary.csv"),
    ]


def _silent(repeat: Repeat, node: str, collector: str) -> list[Cell]:
    state = state_of(repeat, node, collector)
    nothing = Cell("-", state if state != "ok" else "it told nothing in the window", "muted")
    named = [Cell(node), Cell(collector)]
    return [*_whose(repeat), MISSING, *named, MISSING, MISSING, nothing, MISSING]


def _whose(repeat: Repeat) -> list[Cell]:
    return [Cell(repeat.case), Cell(f"{repeat.variant} r{repeat.repeat}")]
