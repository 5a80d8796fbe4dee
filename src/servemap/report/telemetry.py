"""Section on telemetry in the window: hosts, what changed most, where samples are missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from servemap.analysis.case_tables import rows_of
from servemap.analysis.metrics import pick
from servemap.analysis.parts import WHOLE
from servemap.analysis.references import measured
from servemap.analysis.repeats import Repeat
from servemap.analysis.series_figures import SeriesFigures
from servemap.analysis.telemetry_rows import SeriesRow, gap_rows
from servemap.parsers.values import mapping, sequence, text
from servemap.report.changes import Changes
from servemap.report.declared import declared_rows, declared_table
from servemap.report.document import MISSING, Cell, Plot, Section, Table
from servemap.report.numbers import bit_rate, percent, plain, size
from servemap.report.run import Run

MOST_GAPS = 20
_HOST_COLUMNS = [
    *("Case", "Variant", "Segment", "Node", "CPU mean", "Busiest core mean", "Server CPU mean"),
    *(
        "Server RSS max",
        "Memory used max",
        "Network rx mean",
        "Network tx mean",
        "Coverage of proc",
    ),
]
_GAP_COLUMNS = ["Case", "Variant", "Segment", "Node", "Collector", "From s", "For s", "Interval s"]

Figures = dict[tuple[str, str], SeriesFigures]


def telemetry(run: Run, plots: list[Plot], left_out: int) -> Section:
    """Telemetry cut to the window: hosts, changes against the reference, gaps, and a figure each.

    Args:
        run: the run.
        plots: a figure for each case and variant.
        left_out: how many more there would be.
    """
    hosts: list[list[Cell]] = []
    changes = Changes()
    declared: list[list[Cell]] = []
    comparable = {
        variant: [other for other in others if other in run.variants]
        for variant, others in run.compared_with.items()
    }
    for one in measured(run.valid, comparable, rows_of):
        hosts += _host_rows(one.repeat, one.rows)
        changes.add(one)
        declared += declared_rows(one)
    if not hosts:
        return Section(
            "telemetry", "Telemetry in the window", ["No telemetry of a valid repeat was found."]
        )
    note = (
        "Inside the measured window only. CPU: 100 % is the whole machine; server CPU: 100 % is "
        "one core. Network without loopback."
    )
    nodes = map(mapping, sequence(run.campaign.get("nodes")))
    far = [str(node.get("id")) for node in nodes if node.get("transport") == "ssh"]
    if far:
        note += f" On {', '.join(far)} it includes servemap's own ssh traffic."
    tables = [Table(_HOST_COLUMNS, hosts, frozenset(_HOST_COLUMNS[4:]), note)]
    paragraphs = changes.without()
    tables += [found for found in (changes.table(), declared_table(declared)) if found is not None]
    gaps = _gaps(run.valid)
    if gaps.rows:
        tables.append(gaps)
    else:
        paragraphs.append("No collector went without a sample for more than three intervals.")
    if left_out:
        paragraphs.append(
            f"{left_out} more case and variant pairs have telemetry; their figures are left out "
            "here and their tables are in tables/."
        )
    return Section("telemetry", "Telemetry in the window", paragraphs, tables, plots)


def _host_rows(repeat: Repeat, rows: Sequence[SeriesRow]) -> list[list[Cell]]:
    groups: dict[tuple[str, str], Figures] = {}
    for row in rows:
        if row.part == WHOLE and row.family != "throughput":
            own = groups.setdefault((row.segment, row.node), {})
            own[(row.entity, row.metric)] = row.figures
    return [
        [
            Cell(repeat.case),
            Cell(f"{repeat.variant} r{repeat.repeat}"),
            Cell(segment),
            Cell(node),
            *_host_cells(own),
            Cell(_host_coverage(repeat, segment, node)),
        ]
        for (segment, node), own in groups.items()
    ]


def _host_cells(found: Mapping[tuple[str, str], SeriesFigures]) -> list[Cell]:
    none = SeriesFigures(0)
    cores = [
        one.mean
        for (entity, metric), one in found.items()
        if metric == "cpu_util" and entity != "cpu_all" and one.mean is not None
    ]
    traffic = []
    for metric in ("net_rx", "net_tx"):
        means = [
            one.mean
            for (entity, name), one in found.items()
            if name == metric and entity != "lo" and one.mean is not None
        ]
        traffic.append(bit_rate(sum(means)) if means else "-")
    server = found.get(("server", "proc_cpu"), none).mean
    whole = found.get(("cpu_all", "cpu_util"), none).mean
    return [
        *(
            MISSING if share is None else Cell(f"{share:.1f} %")
            for share in (whole, max(cores, default=None), server)
        ),
        Cell(size(found.get(("server", "proc_rss"), none).max)),
        Cell(size(found.get(("memory", "mem_used"), none).max)),
        *(Cell(value) for value in traffic),
    ]


def _host_coverage(repeat: Repeat, segment: str, node: str) -> str:
    rows = [
        row
        for row in map(mapping, repeat.metrics.get("coverage") or [])
        if (row.get("segment"), row.get("node"), row.get("collector")) == (segment, node, "proc")
    ]
    known = [c for c in (pick(row, "coverage") for row in rows) if c is not None]
    if not known:
        return "too short" if rows else "-"
    return percent(min(known), 0)


def _gaps(repeats: Sequence[Repeat]) -> Table:
    found: list[tuple[Repeat, dict[str, Any]]] = [
        (repeat, row) for repeat in repeats for row in gap_rows(repeat)
    ]
    longest = sorted(found, key=lambda one: -one[1]["length_s"])[:MOST_GAPS]
    rows = [
        [
            Cell(repeat.case),
            Cell(f"{repeat.variant} r{repeat.repeat}"),
            *(Cell(text(row[name]) or "-") for name in ("segment", "node", "collector")),
            *(Cell(plain(row[name])) for name in ("begin_s", "length_s", "interval_s")),
        ]
        for repeat, row in longest
    ]
    more = f"; {len(found) - MOST_GAPS} shorter ones are left out" if len(found) > MOST_GAPS else ""
    note = (
        "Stretches of more than three intervals without a sample, from the begin of the segment"
        f"{more}; all: tables/telemetry_gaps.csv"
    )
    return Table(_GAP_COLUMNS, rows, frozenset(_GAP_COLUMNS[5:]), note)
