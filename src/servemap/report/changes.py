"""What telemetry says changed most in each case: a row with its figures, never a word without."""

from collections.abc import Sequence
from typing import NamedTuple

from servemap.analysis.metrics import INJECTED
from servemap.analysis.parts import OVERLAP, WHOLE
from servemap.analysis.references import Change, Measured
from servemap.analysis.repeats import Repeat
from servemap.analysis.telemetry_rows import SeriesRow, raw_file, state_of
from servemap.analysis.throughput import FAMILY as THROUGHPUT
from servemap.parsers.values import text
from servemap.report.document import MISSING, Cell, Table
from servemap.report.numbers import change, plain, size

MOST_ROWS = 6
MOST_NODES = 4
MOST_NAMES = 5
LEAST_SHARE = 0.05
"""A change is listed from this share of the largest mean that its metric has in the run."""

CAPTION = (
    "What changed most against the reference of each case, of each table one row, by the share of "
    "the largest mean that the metric has in this run: mean / P95 / max of each node, inside the "
    "window. A series that the reference lacks has no change. All series: the named file in "
    "tables/, with what each is held against; nodes side by side: tables/side_by_side.csv."
)


class _Candidate(NamedTuple):
    row: SeriesRow
    change: Change
    beside: dict[str, SeriesRow]


class _Case(NamedTuple):
    repeat: Repeat
    found: list[_Candidate]


class Changes:
    """Collects the changes of a run, repeat by repeat, and shows the largest of each case.

    How large one is, is its share of the largest mean that the metric has anywhere in the run: so
    metrics of any unit can stand in one order, and one that is small everywhere in it comes last.
    """

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}
        self._cases: list[_Case] = []
        self._seen: set[tuple[str, str]] = set()
        self._nodes: dict[str, None] = {}
        self._first: list[str] = []
        self._without: list[str] = []

    def add(self, one: Measured) -> None:
        """Take a repeat into account; of repeats of one case and variant the first is shown."""
        for row in one.rows:
            if row.figures.mean is not None:
                most = max(self._largest.get(row.metric, 0.0), abs(row.figures.mean))
                self._largest[row.metric] = most
        key = (one.repeat.variant, one.repeat.case)
        if key in self._seen:
            return
        self._seen.add(key)
        if one.reference is None:
            found = self._first if one.first else self._without
            found.append(f"{one.repeat.variant}/{one.repeat.case}")
        self._cases.append(_Case(one.repeat, self._candidates(one)))

    def _candidates(self, one: Measured) -> list[_Candidate]:
        """Return the largest change of each metric, with the same series on other nodes."""
        series: dict[tuple[str, str, str], dict[str, SeriesRow]] = {}
        best: dict[tuple[str, str], _Candidate] = {}
        for row in shown(one):
            beside = series.setdefault((row.segment, row.entity, row.metric), {})
            beside[row.node] = row
            if row.family != THROUGHPUT:
                self._nodes.setdefault(row.node)
            found = None if row.entity.startswith("pid:") else one.change(row)
            known = best.get((row.segment, row.metric))
            if found and (known is None or abs(found.change) > abs(known.change.change)):
                best[(row.segment, row.metric)] = _Candidate(row, found, beside)
        return list(best.values())

    def without(self) -> list[str]:
        """Return which cases are held against nothing, and why."""
        notes = []
        if self._first:
            notes.append(
                "A variant that is compared with no other has its cases held against the first of "
                "the same shape (they differ in their load only) that is valid. So these have no "
                "change (`-` in the tables), only an injected segment of theirs has one, against "
                f"its control: {_some(self._first)}."
            )
        if self._without:
            notes.append(
                "No variant that these are compared with has a valid repeat of the same case, so "
                f"they have no change (`-` in the tables): {_some(self._without)}."
            )
        return notes

    def table(self) -> Table | None:
        """Return the largest changes of each case; None where nothing has a reference."""
        nodes = list(self._nodes) if len(self._nodes) <= MOST_NODES else []
        columns = ["Case", "Variant", "Segment", "Resource", "Entity", *(nodes or ["Most changed"])]
        columns += ["Reference mean", "Change", "Table"]
        rows = [row for case in self._cases for row in self._rows(case, nodes)]
        if not rows:
            return None
        return Table(columns, rows, frozenset(columns[5:-1]), CAPTION)

    def _rows(self, case: _Case, nodes: Sequence[str]) -> list[list[Cell]]:
        chosen: dict[str, _Candidate] = {}
        for one in sorted(case.found, key=lambda one: -self._share(one)):
            if self._share(one) >= LEAST_SHARE:
                chosen.setdefault(one.row.family, one)
        return [_cells(case.repeat, one, nodes) for one in list(chosen.values())[:MOST_ROWS]]

    def _share(self, one: _Candidate) -> float:
        largest = self._largest.get(one.row.metric, 0.0)
        return abs(one.change.change) / largest if largest else 0.0


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def shown(one: Measured) -> list[SeriesRow]:
    """Return the rows that a case is told by: of its own segment, and beside an injection."""
    headline = text(one.repeat.headline.get("name"))
    overlapped = {row.segment for row in one.rows if row.part == OVERLAP}
    return [
        row
        for row in one.rows
        if row.segment in (headline, INJECTED)
        and row.part == (OVERLAP if row.segment in overlapped else WHOLE)
    ]


def _cells(repeat: Repeat, one: _Candidate, nodes: Sequence[str]) -> list[Cell]:
    row, found = one.row, one.change
    where = row.segment if row.part == WHOLE else f"{row.segment}, {row.part}"
    if row.family == THROUGHPUT:
        values = [figures_cell(repeat, row), *[MISSING] * (max(len(nodes), 1) - 1)]
        raw = "raw/requests.jsonl"
    else:
        shown = [one.beside.get(node) for node in nodes] or [row]
        values = [MISSING if each is None else figures_cell(repeat, each) for each in shown]
        raw = raw_file(repeat, row.node, row.collector).partition("/raw/")[2]
    moved = change(found.change_pct)
    absolute = f"{_value(row.unit, found.change)}" if found.change_pct is None else ""
    return [
        Cell(repeat.case),
        Cell(f"{repeat.variant} r{repeat.repeat}"),
        Cell(where),
        Cell(row.metric, row.unit),
        Cell(row.entity),
        *values,
        Cell(_value(row.unit, found.reference_mean), found.reference),
        Cell(absolute or moved, f"on {row.node}" if len(one.beside) > 1 else ""),
        Cell(f"case_{row.family}_summary.csv", raw.removeprefix("raw/")),
    ]


def figures_cell(repeat: Repeat, row: SeriesRow) -> Cell:
    """Return mean / P95 / max of a series, with the number of its samples."""
    own = row.figures
    if own.mean is None:
        return MISSING
    points = (own.mean, own.p95, own.max)
    said = " / ".join("-" if point is None else _value(row.unit, point) for point in points)
    simulated = state_of(repeat, row.node, row.collector) == "simulated"
    return Cell(said, f"n={own.n}{', simulated' if simulated else ''}")


def _value(unit: str, value: float) -> str:
    if unit == "bytes":
        return size(value)
    if unit == "bytes_per_s":
        return f"{size(value)}/s"
    return f"{plain(value)} %" if unit == "percent" else plain(value)
