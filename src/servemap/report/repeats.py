"""Section on repeats: how far they scatter, each by itself, and whether they drift."""

from typing import Any

from servemap.analysis.compare import NOTHING_LEFT_PCT, TOO_FEW
from servemap.analysis.drift import drift
from servemap.analysis.repeats import Repeat
from servemap.analysis.summary import Row
from servemap.parsers.values import mapping, number, sequence
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.numbers import change, interval, percent, plain, seconds
from servemap.report.reasons import reason_cell
from servemap.report.results import TONES, outcome
from servemap.report.run import Run


def spread(run: Run) -> Section:
    """Repeats of a case: CV and 95 % interval, and every repeat by itself."""
    figures = (
        ("Output tok/s", "agg_output_tps"),
        ("TTFT P95 ms", "ttft_p95_ms"),
        ("TPOT P95 ms", "tpot_p95_ms"),
        ("E2E P95 ms", "e2e_p95_ms"),
    )
    repeated = [row for row in run.aggregates if row["planned"] > 1]
    if not repeated:
        return Section("repeats", "Repeats", ["No case was planned with more than one repeat."])
    rows = []
    for row in repeated:
        cells = [
            Cell(row["case"]),
            Cell(row["variant"]),
            Cell(f"{row['n']}/{row['planned']}"),
            cell(row["starts"]),
        ]
        for _, figure in figures:
            cells.append(_mean_and_interval(row, figure))
            cells.append(
                cell(None if row[f"{figure}_cv"] is None else percent(row[f"{figure}_cv"]))
            )
        rows.append(cells)
    columns = ["Case", "Variant", "Valid", "Starts"]
    for title, _ in figures:
        columns += [title, f"CV of {title.split()[0]} {title.split()[1]}"]
    spread_table = Table(
        columns,
        rows,
        frozenset(columns[2:]),
        "Mean with the 95 % interval (Student's t; from three repeats on; none that reaches below "
        "0), and the coefficient of variation (CV), of so many repeats on so many starts of the "
        "server",
    )
    each = Table(
        ["Case", "Variant", "Repeat", "Attempt", "Outcome", *(t for t, _ in figures), "Reasons"],
        [
            [
                Cell(row["case"]),
                Cell(row["variant"]),
                Cell(str(row["repeat"])),
                cell(row["attempt"]),
                Cell(outcome(repeat).replace("_", " "), tone=TONES[outcome(repeat)]),
                *(Cell(plain(row[f]), _within(repeat, f)) for _, f in figures),
                reason_cell(repeat.reasons),
            ]
            for repeat, row in zip(run.repeats, run.rows, strict=True)
            if any((row["variant"], row["case"]) == (g["variant"], g["case"]) for g in repeated)
        ],
        frozenset({"Repeat", "Attempt", *(t for t, _ in figures)}),
        "Every repeat. Second line: the 95 % bootstrap interval over the requests of this one run, "
        "which knows nothing of other starts and hours; so few requests may leave an end open",
    )
    return Section("repeats", "Repeats", tables=[spread_table, each, *_drift_tables(run)])


def _within(repeat: Repeat, figure: str) -> str:
    """Return the within-run interval of a percentile of a latency; empty where there is none."""
    name, _, rest = figure.partition("_")
    found = mapping(mapping(repeat.headline.get("within_run")).get(f"{name}_s"))
    ends: list[Any] = list(sequence(found.get(rest.removesuffix("_ms"))))
    known = [None if number(end) is None else end * 1e3 for end in ends]
    if len(known) != 2 or known == [None, None]:
        return ""
    low, high = known
    if high is None:
        return f"from {plain(low)}, no upper end"
    return f"no lower end, to {plain(high)}" if low is None else f"{plain(low)} to {plain(high)}"


def _drift_tables(run: Run) -> list[Table]:
    rows = []
    for variant in run.variants:
        found = drift(row for row in run.rows if row["variant"] == variant)
        for case in found.cases:
            rows.append(
                [
                    Cell(variant),
                    Cell(case.case),
                    Cell(str(case.n)),
                    Cell(plain(case.first)),
                    Cell(plain(case.last)),
                    Cell(change(case.change_pct)),
                    Cell(seconds(case.apart_s)),
                ]
            )
        if found.seen is not None:
            low, high = found.changes.ci95_low, found.changes.ci95_high
            said = "drift" if found.seen else "no drift resolved"
            mean = Cell(
                change(found.changes.mean),
                f"{said}; {interval(low, high, NOTHING_LEFT_PCT, change, TOO_FEW)}",
                "warn" if found.seen else "",
            )
            label = Cell(f"mean of {found.changes.n} cases")
            rows.append([Cell(variant), label, *[Cell("")] * 3, mean, Cell("")])
    if not rows:
        return []
    columns = [
        "Variant",
        "Case",
        "Repeats",
        "First tok/s",
        "Last tok/s",
        "Last against first",
        "Apart",
    ]
    caption = (
        "Drift: output tok/s of the last repeat against the first, by the time of measurement; the "
        "mean over three or more cases with its 95 % interval"
    )
    return [Table(columns, rows, frozenset(columns[2:]), caption, folded=True)]


def _mean_and_interval(row: Row, figure: str) -> Cell:
    low, high = row[f"{figure}_ci95_low"], row[f"{figure}_ci95_high"]
    # Of two repeats the interval is many times their distance: it says nothing.
    shown = low is not None and row[f"{figure}_n"] > 2
    note = interval(low, high, 0.0, plain, TOO_FEW) if shown else ""
    return Cell(plain(row[f"{figure}_mean"]), note)
