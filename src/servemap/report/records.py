"""Sections on what was done beside the cases: baselines; and what figures mean."""

from typing import Any

from servemap.analysis.definitions import definitions
from servemap.parsers.values import mapping, sequence, text
from servemap.report.document import Cell, Section, Table, Tone, cell
from servemap.report.numbers import bit_rate, plain
from servemap.report.reasons import reason_cell, reasons_of
from servemap.report.run import Run

_STATUS_TONES: dict[str, Tone] = {
    "ok": "good",
    "failed": "bad",
    "not_run": "warn",
    "not_available": "muted",
}
_STATUS_WORDS = {"not_available": "not available with this engine", "not_run": "not run"}


def status_cell(record: dict[str, Any]) -> Cell:
    """Return the status of a stage's record in words."""
    status = text(record.get("status"))
    if status is None:
        return Cell("no record", tone="warn")
    return Cell(_STATUS_WORDS.get(status, status), tone=_STATUS_TONES.get(status, ""))


def baselines(run: Run) -> Section:
    """Communication baselines, each pair of nodes."""
    rows = []
    for name, record in run.baselines.items():
        label = Cell(name, "simulated" if record.get("simulated") else "")
        results = [mapping(item) for item in sequence(record.get("results"))]
        for result in results or [{}]:
            rtt = mapping(result.get("rtt_us"))
            pair = [text(result.get(side)) or "-" for side in ("from", "to")]
            rows.append(
                [
                    label,
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
        names = planned(run, "baselines")
        none = f"Planned, not measured so far: {', '.join(names)}." if names else ""
        none = none or "No baseline was planned or measured."
        return Section("baselines", "Communication baselines", [none])
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
    table = Table(columns, rows, frozenset(columns[4:9]), note)
    return Section("baselines", "Communication baselines", tables=[table])


def _loads(record: dict[str, Any], pair: list[str]) -> str:
    """Return the 1 min load averages of a pair's nodes before it was measured."""
    known = mapping(record.get("load_before"))
    loads = {name: text(known.get(name)) for name in pair}
    return ", ".join(f"{name} {load.split()[0]}" for name, load in loads.items() if load)


def planned(run: Run, kind: str) -> list[str]:
    """Return what the phases of the campaign plan of a kind: `baselines` or `captures`."""
    phases = map(mapping, sequence(run.campaign.get("phases")))
    entries = [entry for phase in phases for entry in sequence(phase.get(kind))]
    names = [mapping(entry).get("case") if kind == "captures" else entry for entry in entries]
    return list(dict.fromkeys(str(name) for name in names if name))


def meanings() -> Section:
    """The meaning of the figures, as they were computed."""
    content = definitions()
    rows = [[Cell(name), Cell(meaning)] for name, meaning in content["figures"].items()]
    note = (
        "All latencies are the client's clock, all token counts the server's own usage; what other "
        "load clients mean stands in the section on them. "
        f"Definitions version {content['version']}."
    )
    return Section("definitions", "Definitions", [note], [Table(["Figure", "Meaning"], rows)])
