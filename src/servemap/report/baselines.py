"""The report's section on communication baselines: pairs of nodes, collectives by size."""

from typing import Any

from servemap.analysis.baselines import settings_text
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.report import spread
from servemap.report.document import Cell, Plot, Section, Table, cell
from servemap.report.figure import colour_of, grid, line_of, safe, suffix_of
from servemap.report.numbers import bit_rate, moment, plain, size
from servemap.report.reasons import reason_cell, reasons_of
from servemap.report.records import planned, status_cell
from servemap.report.run import Run

_GB = 1e9
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def baselines(run: Run) -> Section:
    """Communication baselines: what was measured, then each kind's figures."""
    if not run.baselines:
        names = planned(run, "baselines")
        none = f"Planned, not measured so far: {', '.join(names)}." if names else ""
        none = none or "No baseline was planned or measured."
        return Section("baselines", "Communication baselines", [none])
    compared = spread.compared(run)
    tables = [_pairs(run), spread.slower_table(compared), _parts(run), *_sizes(run)]
    return Section(
        "baselines",
        "Communication baselines",
        [*_reused(run), *spread.said(compared)],
        tables=[table for table in tables if table is not None],
        plots=_plots(run),
    )


def _reused(run: Run) -> list[str]:
    """Return a paragraph for each baseline whose figures are another run's."""
    found = []
    for name, record in run.baselines.items():
        origin = mapping(record.get("reused"))
        if origin:
            when = moment(origin.get("started_ns"), run.zone)
            found.append(
                f"{name} was not measured in this run: its figures are those of run "
                f"{origin.get('run')}, measured {when}, whose frozen facts are the same."
            )
    return found


def _label(name: str, record: dict[str, Any]) -> Cell:
    notes = ["simulated"] if record.get("simulated") else []
    if origin := mapping(record.get("reused")):
        notes.append(f"of run {origin.get('run')}")
    return Cell(name, ", ".join(notes))


def _pairs(run: Run) -> Table | None:
    rows = []
    for name, record in run.baselines.items():
        if record.get("kind") in ("collective", "copies"):
            continue
        results = [mapping(item) for item in sequence(record.get("results"))]
        for result in results or [{}]:
            rtt = mapping(result.get("rtt_us"))
            pair = [text(result.get(side)) or "-" for side in ("from", "to")]
            rows.append(
                [
                    _label(name, record),
                    status_cell(result if "status" in result else record),
                    cell(record.get("kind")),
                    Cell(" to ".join(pair) if results else "-"),
                    *(Cell(plain(rtt.get(p))) for p in ("p50", "p95", "p99", "max")),
                    Cell(bit_rate(result.get("bandwidth_bytes_per_s"))),
                    cell(_loads(record, pair)),
                    reason_cell([result.get("error") or ""]) if results else reasons_of(record),
                ]
            )
    if not rows:
        return None
    columns = [
        "Baseline",
        "Status",
        "Kind",
        "Pair",
        "RTT P50 µs",
        "RTT P95 µs",
        "RTT P99 µs",
        "RTT max µs",
        "Bandwidth",
        "Load before",
        "Reasons",
    ]
    note = (
        "Measured once, with no server on the cards. Load before: how many processes each node was "
        "busy with in the minute before; a busy node has slower figures"
    )
    return Table(columns, rows, frozenset(columns[4:9]), note)


def _loads(record: dict[str, Any], nodes: list[str]) -> str:
    """Return the 1 min load averages of some nodes before they were measured."""
    known = mapping(record.get("load_before"))
    loads = {name: text(known.get(name)) for name in nodes}
    return ", ".join(f"{name} {load.split()[0]}" for name, load in loads.items() if load)


def _collectives(run: Run) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return (name, record, part) of all parts; a record without any has one that is empty."""
    return [
        (name, record, mapping(part))
        for name, record in run.baselines.items()
        if record.get("kind") == "collective"
        for part in sequence(record.get("results")) or [{}]
    ]


def _parts(run: Run) -> Table | None:
    rows = []
    for name, record, part in _collectives(run):
        versions = mapping(part.get("versions"))
        nodes = [str(node) for node in sequence(part.get("nodes"))]
        rows.append(
            [
                _label(name, record),
                status_cell(part if "status" in part else record),
                cell(settings_text(part)),
                cell(", ".join(nodes)),
                cell(part.get("world")),
                cell(part.get("tool")),
                cell(part.get("launch")),
                cell(part.get("backend")),
                cell(", ".join(f"{key} {value}" for key, value in versions.items())),
                cell(_loads(record, nodes)),
                reason_cell([part.get("error") or ""]) if part else reasons_of(record),
            ]
        )
    if not rows:
        return None
    columns = [
        "Baseline",
        "Status",
        "Setting",
        "Nodes",
        "Ranks",
        "Tool",
        "Launch",
        "Backend",
        "Versions",
        "Load before",
        "Reasons",
    ]
    return Table(columns, rows, frozenset({"Ranks"}), "Collectives, with no server on the cards")


def _sizes(run: Run) -> list[Table]:
    """Return a table of busbw for each part: a row a size, a column an operation."""
    tables = []
    for name, record, part in _collectives(run):
        found = [mapping(row) for row in sequence(part.get("rows"))]
        if part.get("status") != "ok" or not found:
            continue
        operations = list(dict.fromkeys(str(row.get("operation")) for row in found))
        sizes = sorted({known for row in found if (known := integer(row.get("size_bytes")))})
        by_key = {(row.get("operation"), row.get("size_bytes")): row for row in found}
        rows = [
            [
                Cell(size(one)),
                *(_rate(mapping(by_key.get((operation, one)))) for operation in operations),
            ]
            for one in sizes
        ]
        where = ", ".join(str(node) for node in sequence(part.get("nodes")))
        caption = f"busbw GB/s of {_title(name, part)} on {where}; below it the time"
        if record.get("simulated"):
            caption += "; simulated"
        tables.append(Table(["Size", *operations], rows, frozenset({"Size", *operations}), caption))
    return tables


def _rate(row: dict[str, Any]) -> Cell:
    """Return busbw in GB/s (10^9 bytes/s) with the median time, or the mean where that is all."""
    rate = number(row.get("busbw_bytes_per_s"))
    if rate is None:
        return cell(None)
    times = mapping(row.get("time_s"))
    middle = number(times.get("p50"))
    taken = number(times.get("mean")) if middle is None else middle
    return Cell(plain(rate / _GB), "" if taken is None else f"{plain(taken * 1e6)} µs")


def _title(name: str, part: dict[str, Any]) -> str:
    return f"{name} {settings_text(part)}".strip()


def _plots(run: Run) -> list[Plot]:
    """Return busbw over the size: a panel a baseline, a colour an operation, a dash a setting."""
    parts = [
        (name, part)
        for name, _, part in _collectives(run)
        if part.get("status") == "ok" and part.get("rows")
    ]
    names = list(dict.fromkeys(name for name, _ in parts))
    if not names:
        return []
    simulated = {name for name in names if run.baselines[name].get("simulated")}
    titles = [f"{name} (simulated)" if name in simulated else name for name in names]
    figure = grid([safe(title) for title in titles], 0.07, 400)
    for panel, name in enumerate(names):
        of_name = [part for one, part in parts if one == name]
        several = len({tuple(sequence(part.get("nodes"))) for part in of_name}) > 1
        for position, part in enumerate(of_name):
            said = settings_text(part)
            if several:
                said = f"{said} {', '.join(map(str, sequence(part.get('nodes'))))}".strip()
            rows = [mapping(row) for row in sequence(part.get("rows"))]
            operations = list(dict.fromkeys(str(row.get("operation")) for row in rows))
            for number_, operation in enumerate(operations):
                own = [row for row in rows if row.get("operation") == operation]
                points = sorted(
                    (known, rate / _GB)
                    for row in own
                    if (known := number(row.get("size_bytes")))
                    and (rate := number(row.get("busbw_bytes_per_s"))) is not None
                )
                line = line_of(panel, f"{operation} {said}".strip(), colour_of(number_))
                line["line"]["dash"] = _DASHES[position % len(_DASHES)]
                line |= {"x": [x for x, _ in points], "y": [y for _, y in points]}
                figure["data"].append(line)
        suffix = suffix_of(panel)
        figure["layout"][f"xaxis{suffix}"] |= {"type": "log", "title": {"text": "bytes"}}
        figure["layout"][f"yaxis{suffix}"] |= {"type": "log", "title": {"text": "busbw GB/s"}}
    return [Plot("Bus bandwidth over message size, both logarithmic", figure, 400)]
