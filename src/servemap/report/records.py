"""Sections on what was done beside the cases: server, patches, baselines, captures."""

from typing import Any

from servemap.analysis.definitions import definitions
from servemap.parsers.values import mapping, sequence, text
from servemap.report.document import Cell, Section, Table, Tone, cell
from servemap.report.numbers import bit_rate, plain, seconds
from servemap.report.run import Run
from servemap.report.servers import server_tables

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


def reasons_of(record: dict[str, Any]) -> Cell:
    """Return a record's reasons as one cell."""
    return cell("; ".join(str(reason) for reason in sequence(record.get("reasons"))))


def server(run: Run) -> Section:
    """Launches, gates and patches of every variant."""
    launches = [
        [
            Cell(variant),
            status_cell(record),
            cell(_engine(record)),
            Cell(seconds(record.get("start_s"))),
            cell(" ".join(map(str, sequence(record.get("argv"))))),
            reasons_of(record),
        ]
        for variant, record in run.launches.items()
    ]
    gates = [
        [
            Cell(variant),
            cell(check.get("name")),
            _result(check.get("ok")),
            cell(_words(check.get("evidence"))),
            cell(None if check.get("ok") is True else check.get("remedy")),
        ]
        for variant, record in run.launches.items()
        for check in map(mapping, sequence(mapping(record.get("gate")).get("checks")))
    ]
    tables = [
        Table(
            ["Variant", "Launch", "Engine", "Start", "Command line", "Reasons"],
            launches,
            frozenset({"Start"}),
            "Launches",
        )
    ]
    if gates:
        tables.append(
            Table(
                ["Variant", "Gate", "Result", "Evidence", "Remedy"],
                gates,
                caption="Gates of the first start",
            )
        )
    tables += server_tables(run)
    paragraphs = []
    if patches := _patch_rows(run):
        tables.append(
            Table(
                [
                    "Variant",
                    "Node",
                    "Patch",
                    "Status",
                    "File",
                    "sha256 before",
                    "sha256 after",
                    "Verified",
                ],
                patches,
                caption="Patches applied",
            )
        )
    else:
        paragraphs.append("No variant of this run has patches.")
    return Section("server", "Server, gates and patches", paragraphs, tables)


def _result(ok: Any) -> Cell:
    """Return how a check ended; one may have no answer, and need none."""
    if ok is None:
        return Cell("no answer", tone="muted")
    return Cell("pass", tone="good") if ok is True else Cell("fail", tone="bad")


def _engine(record: dict[str, Any]) -> str:
    return " ".join(filter(None, (text(record.get("engine")), text(record.get("engine_version")))))


def _words(value: Any) -> str:
    """Return evidence, which a gate may give as text or as data, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return "" if value is None else str(value)


def _patch_rows(run: Run) -> list[list[Cell]]:
    rows = []
    for (variant, node), record in run.patches.items():
        patches = record.get("patches")
        named = (
            [(str(name), mapping(item)) for name, item in patches.items()]
            if isinstance(patches, dict)
            else [(str(mapping(i).get("id", "")), mapping(i)) for i in sequence(patches)]
        )
        if not named and record.get("status") == "failed":
            named = [("", {})]
        for name, patch in named:
            files = [mapping(item) for item in sequence(patch.get("files"))] or [{}]
            verified = [mapping(item) for item in sequence(patch.get("verified"))]
            passed = sum(item.get("ok") is True for item in verified)
            for position, file in enumerate(files):
                head = position == 0
                rows.append(
                    [
                        Cell(variant if head else ""),
                        Cell(node if head else ""),
                        cell(name) if head else Cell(""),
                        status_cell(record) if head else Cell(""),
                        cell(file.get("path") or patch.get("target")),
                        cell((text(file.get("sha256_before")) or "")[:12]),
                        cell((text(file.get("sha256_after")) or "")[:12]),
                        Cell(f"{passed} of {len(verified)}") if head else Cell(""),
                    ]
                )
    return rows


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
                    cell(result.get("error")) if results else reasons_of(record),
                ]
            )
    if not rows:
        return Section("baselines", "Communication baselines", ["No baseline was measured."])
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
        "Reasons",
    ]
    note = "Measured once, with no server on the cards"
    table = Table(columns, rows, frozenset(columns[4:9]), note)
    return Section("baselines", "Communication baselines", tables=[table])


def captures(run: Run) -> Section:
    """Profiles: never mixed with measured results."""
    rows = [
        [
            Cell(variant),
            Cell(case),
            cell(record.get("kind")),
            status_cell(record),
            reasons_of(record),
        ]
        for (variant, case), record in run.captures.items()
    ]
    if not rows:
        return Section("captures", "Captures", ["No capture was planned or taken."])
    table = Table(["Variant", "Case", "Kind", "Status", "Reasons"], rows)
    note = "A capture shows where time goes inside a few engine steps; its timings are not results."
    return Section("captures", "Captures", [note], [table])


def meanings() -> Section:
    """The meaning of the figures, as they were computed."""
    content = definitions()
    rows = [[Cell(name), Cell(meaning)] for name, meaning in content["figures"].items()]
    note = (
        "All latencies are the client's clock, all token counts the server's own usage. "
        f"Definitions version {content['version']}."
    )
    return Section("definitions", "Definitions", [note], [Table(["Figure", "Meaning"], rows)])
