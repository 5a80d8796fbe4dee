"""Section on what a variant changed: effect, interval, noise floor and decision."""

from servemap.analysis.compare import (
    TOO_FEW,
    Comparison,
    compare,
    more_is_better,
    of_row,
    reference,
)
from servemap.analysis.summary import Row
from servemap.report.document import MISSING, Cell, Section, Table, Tone
from servemap.report.numbers import change
from servemap.report.run import Run

FIGURES = (
    ("Output tok/s", "agg_output_tps"),
    ("TTFT P95", "ttft_p95_ms"),
    ("TPOT P95", "tpot_p95_ms"),
    ("E2E P95", "e2e_p95_ms"),
)
TITLE = "Comparisons"


def tone_of(found: Comparison) -> Tone:
    """Return the colour of a change: none where it is not resolved."""
    tones: dict[str, Tone] = {"better": "good", "worse": "bad"}
    return tones.get(found.decision, "")


def comparisons(run: Run) -> Section:
    """Each variant against the best one that differs from it in one variable, case by case."""
    rows: list[list[Cell]] = []
    one_start = False
    for name in run.cases:
        own = [row for row in run.aggregates if row["case"] == name]
        for row in own:
            base = reference(row, own, run.compared_with.get(row["variant"], []))
            if base is None or not row["n"]:
                continue
            one_start |= _within_one_start(row) or _within_one_start(base)
            rows.append(
                [
                    Cell(name),
                    Cell(row["variant"], f"against {base['variant']}"),
                    Cell(f"{base['n']}, {row['n']}"),
                    *(_effect_cell(base, row, figure) for _, figure in FIGURES),
                ]
            )
    if not rows:
        none = "No case was measured validly under two variants that differ in one variable."
        return Section("comparisons", TITLE, [none])
    notes = [
        "Change of the mean over valid repeats, its 95 % interval (Welch's t), and what may be "
        "said of it. The noise floor is the smallest change that so many repeats with this spread "
        "can show (two-sided 5 %, power 80 %), at least 1 %. A change below it, or whose interval "
        "holds 0, is not resolved; with a single repeat on either side there is no noise floor. "
        "An interval that holds 0 and falls of more than 100 % says nothing: there are "
        f"{TOO_FEW}.",
    ]
    if one_start:
        notes.append(
            "Some repeats are all of one start of the server: what another start would change is "
            "not in their noise floor (policy.order: relaunched measures it)."
        )
    columns = ["Case", "Variant", "Repeats", *(title for title, _ in FIGURES)]
    return Section("comparisons", TITLE, notes, [Table(columns, rows, frozenset(columns[2:]))])


def _within_one_start(row: Row) -> bool:
    return bool(row["starts"] == 1 and row["n"] > 1)


def _effect_cell(base: Row, row: Row, figure: str) -> Cell:
    found = compare(of_row(base, figure), of_row(row, figure), more_is_better(figure))
    if found is None:
        return MISSING
    if found.floor_pct is None:
        return Cell(change(found.effect_pct), found.decision)
    within = found.reason or f"{change(found.low_pct)} to {change(found.high_pct)}"
    note = f"{found.decision}; {within}, floor {found.floor_pct:.1f} %"
    return Cell(change(found.effect_pct), note, tone_of(found))
