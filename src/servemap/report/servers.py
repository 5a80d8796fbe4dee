"""The section on the server: launches, command lines, gates, patches."""

from typing import Any, Literal

from servemap.parsers.values import integer, mapping, sequence, text
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.numbers import seconds
from servemap.report.reasons import reasons_of
from servemap.report.records import status_cell
from servemap.report.run import Run
from servemap.report.settings import said_tables
from servemap.report.transport import transport_tables

GateResult = Literal["pass", "fail", "not known", "n/a"]
_GATE_CELLS: dict[GateResult, Cell] = {
    "pass": Cell("pass", tone="good"),
    "fail": Cell("fail", tone="bad"),
    "not known": Cell("not known", tone="warn"),
    "n/a": Cell("n/a"),
}
_DEGREES = ("tp", "pp", "dp", "ep")


def gate_checks(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Return (variant, check) of every gate of the first starts."""
    return [
        (variant, check)
        for variant, record in run.launches.items()
        for check in map(mapping, sequence(mapping(record.get("gate")).get("checks")))
    ]


def gate_result(check: dict[str, Any]) -> GateResult:
    """Return the result of a gate; `ok` is null where its facts could not be had.

    It is also null where the gate says that there is nothing to look at.
    """
    if check.get("ok") is True:
        return "pass"
    if check.get("ok", False) is None and _words(check.get("evidence")).startswith("n/a: "):
        return "n/a"
    return "not known" if check.get("ok", False) is None else "fail"


def gates_in_words(run: Run) -> str | None:
    """Return how the gates of the first starts went, those that did not pass by name."""
    found: dict[str, list[str]] = {"pass": [], "fail": [], "not known": [], "n/a": []}
    for variant, check in gate_checks(run):
        name = f"{check.get('name')}" + (f" of {variant}" if len(run.launches) > 1 else "")
        found[gate_result(check)].append(name)
    words = [f"{len(found['pass'])} passed"] + [
        f"{len(found[result])} {word} ({', '.join(found[result])})"
        for result, word in (("fail", "failed"), ("not known", "not known"))
        if found[result]
    ]
    return (
        ", ".join(words) if any(found[result] for result in ("pass", "fail", "not known")) else None
    )


def server(run: Run) -> Section:
    """Launches, gates and patches of every variant."""
    launches = [
        [
            Cell(variant),
            status_cell(record),
            cell(_engine(record)),
            Cell(seconds(record.get("start_s"))),
            *_spec_cells(record),
            reasons_of(record),
        ]
        for variant, record in run.launches.items()
    ]
    gates = [
        [
            Cell(variant),
            cell(check.get("name")),
            _GATE_CELLS[gate_result(check)],
            cell(_words(check.get("evidence"))),
            cell(None if check.get("ok") is True else check.get("remedy")),
        ]
        for variant, check in gate_checks(run)
    ]
    tables = [
        Table(
            ["Variant", "Launch", "Engine", "Start", "Parallelism", "Listens at", "Reasons"],
            launches,
            frozenset({"Start"}),
            "Launches",
        )
    ]
    if commands := _command_rows(run):
        tables.append(
            Table(
                ["Variant", "Node", "Rank", "Command line"],
                commands,
                frozenset({"Rank"}),
                "Command line of every rank",
            )
        )
    if gates:
        tables.append(
            Table(
                ["Variant", "Gate", "Result", "Evidence", "Remedy"],
                gates,
                caption="Gates of the first start",
            )
        )
    tables += transport_tables(run)
    tables += said_tables(run)
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
    if imports := _import_rows(run):
        tables.append(
            Table(
                ["Variant", "Node", "Process", "Module", "File", "sha256", "How"],
                imports,
                caption="Patched files as the server's processes imported them",
            )
        )
    return Section("server", "Server, gates and patches", paragraphs, tables)


def _engine(record: dict[str, Any]) -> str:
    return " ".join(filter(None, (text(record.get("engine")), text(record.get("engine_version")))))


def _words(value: Any) -> str:
    """Return evidence, which a gate may give as text or as data, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return "" if value is None else str(value)


def _spec_cells(record: dict[str, Any]) -> list[Cell]:
    """Return how the server is spread and where it listens, as its spec says."""
    spec = mapping(mapping(record.get("spec")).get("server"))
    topology = mapping(spec.get("topology"))
    degrees = [f"{name.upper()} {topology[name]}" for name in _DEGREES if name in topology]
    if attached := text(spec.get("attach")):
        return [cell(", ".join(degrees)), Cell(attached, "attached")]
    host, port = text(spec.get("bind")), integer(spec.get("port"))
    if host is None or port is None:
        return [cell(", ".join(degrees)), cell(None)]
    shared = len(sequence(record.get("ranks"))) > 1
    meet = f"ranks meet at port {spec.get('master_port')} of the head" if shared else ""
    address = f"[{host}]" if ":" in host else host
    return [cell(", ".join(degrees)), Cell(f"http://{address}:{port}", meet)]


def _command_rows(run: Run) -> list[list[Cell]]:
    rows = []
    for variant, record in run.launches.items():
        ranks = [mapping(rank) for rank in sequence(record.get("ranks"))]
        for rank in ranks or [{"argv": record.get("argv")}]:
            if argv := sequence(rank.get("argv")):
                line = Cell(" ".join(map(str, argv)))
                rows.append([Cell(variant), cell(rank.get("node")), cell(rank.get("rank")), line])
    return rows


def _import_rows(run: Run) -> list[list[Cell]]:
    """Return what the processes of the first starts noted of the files that patches changed."""
    return [
        [
            Cell(variant),
            Cell(node),
            Cell(f"{item.get('process')} (pid {item.get('pid')})"),
            cell(item.get("module")),
            cell(item.get("file")),
            cell((text(item.get("sha256")) or "")[:12]),
            Cell("inherited by a fork" if item.get("inherited") is True else "compiled"),
        ]
        for variant, record in run.launches.items()
        for node, found in mapping(mapping(record.get("gate")).get("imports")).items()
        for item in map(mapping, sequence(found))
        if item
    ]


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
