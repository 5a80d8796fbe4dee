"""Section on milestones: whether the repeats of each case agree, and what missed by how much."""

from typing import Any

from servemap.parsers.values import mapping, number, sequence
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.numbers import percent, plain
from servemap.report.run import Run


def milestones(run: Run) -> Section | None:
    """Every case of every milestone: repeats, CV, limit, met or missed; None without milestones."""
    if not run.milestones:
        return None
    rows = [row for record in run.milestones for row in _rows(record)]
    columns = ["Phase", "Case", "Variant", "Valid", "Asked for", "Figure", "Mean", "CV",
               "CV limit", "Result"]  # fmt: skip
    note = (
        "A case meets a milestone if so many repeats are valid and the CV of the figure over them "
        "is within the limit. A milestone that is missed fails its phase and the gate."
    )
    table = Table(columns, rows, frozenset({"Valid", "Asked for", "Mean", "CV", "CV limit"}))
    return Section("milestones", "Milestones", [note], [table])


def _rows(record: dict[str, Any]) -> list[list[Cell]]:
    cases = [mapping(case) for case in sequence(record.get("cases"))]
    if not cases:
        return [[Cell(str(record["phase"])), *[cell(None)] * 8, _result([])]]
    return [
        [
            Cell(str(record["phase"])),
            Cell(str(case["case"]), "fallback" if case["lengths"] == "fallback" else ""),
            Cell(str(case["variant"])),
            Cell(f"{case['n']}/{case['planned']}"),
            Cell(plain(record["repeats"])),
            Cell(str(record["metric"])),
            Cell(plain(case["mean"])),
            Cell(percent(case["cv"], 2)),
            Cell(f"{(number(record['cv']) or 0.0) * 100:g} %"),
            _result(case["missed"]),
        ]
        for case in cases
    ]


def _result(missed: list[str]) -> Cell:
    """Return met, or missed and by how much; why repeats are not valid stands under failures."""
    if not missed:
        return Cell("met", tone="good")
    return Cell("missed", "; ".join(text.partition(" (")[0] for text in missed), "bad")


def _missed_cases(record: dict[str, Any]) -> str:
    """Return `missed in 1 of 3 cases` or `met`."""
    cases = [mapping(case) for case in sequence(record.get("cases"))]
    missed = sum(bool(case.get("missed")) for case in cases)
    return f"missed in {missed} of {len(cases)} cases" if missed else "met"


def milestones_in_words(run: Run) -> str | None:
    """Return each milestone and whether it is met; None without milestones."""
    said = [f"{record['phase']}: {_missed_cases(record)}" for record in run.milestones]
    return "; ".join(said) or None


def missed_milestones(run: Run) -> list[str]:
    """Return one sentence on the milestones that were missed, for the top of the report."""
    said = [
        f"{record['phase']} {_missed_cases(record)}"
        for record in run.milestones
        if not record["passed"]
    ]
    return [f"Milestones missed: {'; '.join(said)}; see the section on them."] if said else []
