"""Section on the cost of watching: the same case without collectors, with them, at 10 Hz."""

from statistics import fmean

from servemap.analysis.compare import Comparison, compare, more_is_better, of_row
from servemap.analysis.repeats import Repeat, read_object
from servemap.analysis.summary import Row
from servemap.model.watching import FAST_S, SUFFIXES, watched_id
from servemap.parsers.values import mapping, number, sequence, text
from servemap.report.document import MISSING, Cell, Section, Table
from servemap.report.numbers import change
from servemap.report.run import Run

FIGURES = (
    ("Output tok/s", "agg_output_tps"),
    ("TTFT P50", "ttft_p50_ms"),
    ("TPOT P50", "tpot_p50_ms"),
    ("E2E P50", "e2e_p50_ms"),
)
WATCHED = {"usual": "collectors as in the campaign", "10hz": "collectors at 10 Hz"}
NOTES = [
    "What collectors cost: the case with them against the same case without any, repeats taken in "
    "turn. A change that is not resolved is within the noise: the floor is the smallest one that "
    "these repeats can show (see Comparisons). CPU is what the collectors themselves used, in "
    "percent of one core, mean and largest over repeats and nodes; what ran at another place of "
    "the same machine for them is not in it.",
    "Who else used the machine is seen by collectors only: a repeat without them is never invalid "
    "for it, so look at the others' verdicts first where some of them are. Where a change has no "
    "floor below what you look for, more repeats are needed; with two it is rarely below 10 %.",
]


def watching(run: Run) -> Section | None:
    """Each case with `watching: compare`, by variant; None where the campaign has none."""
    rows: list[list[Cell]] = []
    for case in _compared(run):
        for variant in run.variants:
            rows += _rows(run, case, variant)
    if not rows:
        return None
    columns = ["Case", "Variant", "Watched by", "Repeats", *(t for t, _ in FIGURES), "CPU"]
    table = Table(columns, rows, frozenset(columns[3:]))
    return Section("watching", "Cost of watching", NOTES, [table])


def _compared(run: Run) -> list[str]:
    written = map(mapping, sequence(run.campaign.get("cases")))
    return [
        name
        for case in written
        if case.get("watching") == "compare" and (name := text(case.get("id"))) is not None
    ]


def _rows(run: Run, case: str, variant: str) -> list[list[Cell]]:
    found = {
        watched: next(
            (
                row
                for row in run.aggregates
                if (row["variant"], row["case"], row["lengths"])
                == (variant, watched_id(case, watched), "planned")
            ),
            None,
        )
        for watched in SUFFIXES
    }
    base = found["none"]
    rows = []
    for watched, said in WATCHED.items():
        row = found[watched]
        if row is None:
            continue
        rows.append(
            [
                Cell(case),
                Cell(variant),
                Cell(said, _slower(run, variant, watched_id(case, watched), watched)),
                Cell(f"{base['n'] if base else 0}, {row['n']}"),
                *(_cost(base, row, figure) for _, figure in FIGURES),
                _cpu(run, variant, watched_id(case, watched)),
            ]
        )
    return rows


def _slower(run: Run, variant: str, case: str, watched: str) -> str:
    """Return which collectors of a case at 10 Hz have a longer interval, that of their tool."""
    if watched != "10hz":
        return ""
    every = {
        name: interval_s
        for repeat in run.repeats
        if (repeat.variant, repeat.case) == (variant, case)
        for key, record in mapping(repeat.meta.get("collectors")).items()
        if mapping(record).get("status") != "absent"
        and (interval_s := number(mapping(record).get("interval_s"))) is not None
        and interval_s > FAST_S
        and (name := key.rpartition("/")[2])
    }
    said = ", ".join(f"{name} {every[name]:g} s" for name in sorted(every))
    return f"less often, as their tools allow: {said}" if said else ""


def _cost(base: Row | None, row: Row, figure: str) -> Cell:
    if base is None or not base["n"] or not row["n"]:
        return Cell("-", "no valid repeat on one side")
    found = compare(of_row(base, figure), of_row(row, figure), more_is_better(figure))
    return MISSING if found is None else Cell(change(found.effect_pct), said_of(found))


def said_of(found: Comparison) -> str:
    """Return what may be said of a change that watching made."""
    if found.floor_pct is None:
        return found.decision
    if found.decision == "not resolved":
        return f"within the noise, floor {found.floor_pct:.1f} %"
    within = found.reason or f"{change(found.low_pct)} to {change(found.high_pct)}"
    return f"{found.decision}; {within}, floor {found.floor_pct:.1f} %"


def _cpu(run: Run, variant: str, case: str) -> Cell:
    used = [
        percent
        for repeat in run.repeats
        if (repeat.variant, repeat.case) == (variant, case)
        for percent in cpu_percent(repeat)
    ]
    if not used:
        return MISSING
    return Cell(f"{fmean(used):.1f} %", f"at most {max(used):.1f} %")


def cpu_percent(repeat: Repeat) -> list[float]:
    """Return the collectors' own CPU time on each node, in percent of one core."""
    if repeat.attempt is None:
        return []
    raw = repeat.folder / "attempts" / f"{repeat.attempt:03d}" / "raw"
    found = []
    for path in sorted(raw.glob("telemetry/*/collectors.json")):
        own = mapping(read_object(path)[0].get("self"))
        cpu_s, wall_s = number(own.get("cpu_s")), number(own.get("wall_s"))
        if cpu_s is not None and wall_s:
            found.append(cpu_s / wall_s * 100)
    return found
