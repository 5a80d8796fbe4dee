"""What the report says of pairs, nodes and ranks of baselines that are slower than the others."""

from collections import Counter

from servemap.analysis.communication.spread import (
    LIMIT,
    Row,
    comparisons,
    figure_text,
    spread_rows,
)
from servemap.analysis.verdict import resolve_limits
from servemap.parsers.values import mapping
from servemap.report.document import Cell, Table, cell
from servemap.report.numbers import percent, plain
from servemap.report.run import Run

_GB = 1e9


def compared(run: Run) -> list[Row]:
    """Return all that is compared in a run's baselines (see `analysis.communication.spread`)."""
    return spread_rows(run.baselines, resolve_limits(mapping(run.campaign.get("limits"))))


def said(rows: list[Row]) -> list[str]:
    """Return a paragraph that says what was compared, and whether something is slower."""
    if not rows:
        return []
    counts = Counter(row["comparison"] for row in rows)
    what = ", ".join(f"{name} {counts[name]}" for name in comparisons() if name in counts)
    limit = percent(rows[0]["limit"])
    found = sum(not row["ok"] for row in rows)
    outcome = f"slower by more than {limit}: {found or 'none'}"
    return [
        f"Each beside the median of the others ({what}): {outcome} (limits.{LIMIT}). All: "
        "tables/baseline_spread.csv; what each comparison tells: docs/verdicts.md."
    ]


def slower_table(rows: list[Row]) -> Table | None:
    """Return what is slower than the others, with what that means; None where nothing is."""
    found = [row for row in rows if not row["ok"]]
    if not found:
        return None
    columns = ["Baseline", "Slower", "By", "GB/s", "Others GB/s", "Figure", "Means", "Look at"]
    cells = []
    for row in found:
        comparison = comparisons()[row["comparison"]]
        cells.append(
            [
                Cell(row["baseline"], "simulated" if row["simulated"] else ""),
                Cell(row["place"], tone="bad"),
                Cell(percent(row["slower_by"])),
                Cell(plain(row["bytes_per_s"] / _GB)),
                Cell(plain(row["others_bytes_per_s"] / _GB)),
                cell(figure_text(row)),
                cell(comparison.means),
                cell(comparison.remedy),
            ]
        )
    return Table(columns, cells, frozenset(columns[2:5]), "Slower than the others of its kind")
