"""The section on load clients of others: what they mean, and whether their summaries hold."""

from typing import Any

from servemap.analysis.client_summary import CHECK
from servemap.analysis.repeats import Repeat
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.run import Run

COLUMNS = [
    "Variant",
    "Case",
    "r",
    "Client",
    "Window from",
    "Known to ms",
    "Processor time s",
    "Figures made again",
    "Largest difference",
]


def clients(run: Run) -> Section | None:
    """Return the section; None where servemap's own client measured everything."""
    repeats = [repeat for repeat in run.repeats if "client" in repeat.meta]
    if not repeats:
        return None
    note = (
        "Cases that another load client measured. Times and tokens are those that it took; "
        "percentiles and rates are servemap's, over them. Its own summary was made again from its "
        "requests under its own definitions"
    )
    tables = [Table(COLUMNS, [_row(r) for r in repeats], frozenset(COLUMNS[5:]), note)]
    summaries = {
        str(said["client"]): said
        for repeat in repeats
        if text((said := mapping(repeat.metrics.get("client_summary"))).get("client"))
    }
    tables += [_definitions(name, said) for name, said in summaries.items()]
    return Section("clients", "Other load clients", tables=tables)


def _row(repeat: Repeat) -> list[Cell]:
    client = mapping(repeat.meta.get("client"))
    segments = [mapping(segment) for segment in sequence(repeat.meta.get("segments"))]
    segment = segments[0] if segments else {}
    error_ns = integer(segment.get("error_ns"))
    checks = [mapping(check) for check in sequence(repeat.metrics.get("checks"))]
    check: dict[str, Any] = next((one for one in checks if one.get("name") == CHECK), {})
    worst = number(check.get("value"))
    figures = mapping(mapping(repeat.metrics.get("client_summary")).get("figures"))
    others = sequence(mapping(repeat.metrics.get("client_summary")).get("not_compared"))
    cpu_s = number(mapping(client.get("window_cpu")).get("cpu_s"))
    return [
        Cell(repeat.variant),
        Cell(repeat.case),
        Cell(str(repeat.repeat)),
        Cell(text(client.get("name")) or "-", text(client.get("version")) or ""),
        cell(text(segment.get("source"))),
        cell(None if error_ns is None else f"{error_ns / 1e6:,.2f}"),
        cell(None if cpu_s is None else f"{cpu_s:.2f}"),
        cell(f"{len(figures) - len(others)} of {len(figures)}" if figures else None),
        Cell(
            "-" if worst is None else f"{worst:.1g}",
            text(check.get("note")) or "",
            "bad" if check.get("ok") is False else "",
        ),
    ]


def _definitions(name: str, said: dict[str, Any]) -> Table:
    meanings = mapping(said.get("definitions"))
    rows = [[Cell(str(figure)), Cell(str(meaning))] for figure, meaning in meanings.items()]
    caption = f"What {name} means by its figures, as of {said.get('read_from')}"
    return Table(["Figure", "Meaning"], rows, caption=caption, folded=True)
