"""The section on captures: what was taken, and what its analysis says; never results."""

from collections.abc import Iterator
from typing import Any

from servemap.analysis.traces.brief import brief
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.report.capture_plots import exposed_plot
from servemap.report.document import Cell, Section, Table, cell
from servemap.report.numbers import percent, plain
from servemap.report.reasons import reason_cell, reasons_of
from servemap.report.records import planned, status_cell
from servemap.report.run import Run

PROFILED = (
    "Profiled: a profiler ran, which slows the server, on a start of its own without results. "
    "A capture says where time goes inside a few engine steps; its timings are not results and "
    "are compared with none."
)
_SHOWN = 0.005
"""Classes with a smaller share are not listed, but for the unmatched."""

_BEHIND = 3
_NAME = 60

Part = tuple[str, dict[str, Any], bool]
"""One rank's figures: its name, the figures, whether a device was traced."""


def captures(run: Run) -> Section:
    """Profiles: never mixed with measured results."""
    if not run.captures:
        names = planned(run, "captures")
        none = f"Planned, not taken so far: {', '.join(names)}." if names else ""
        return Section("captures", "Captures", [none or "No capture was planned or taken."])
    tables = [_taken(run)]
    analysed = {
        f"{variant}/{case}": mapping(run.analyses.get((variant, case)))
        for variant, case in run.captures
    }
    analysed = {name: one for name, one in analysed.items() if one.get("status") == "ok"}
    if analysed:
        tables += [_ranks(analysed), *_phases(analysed), *_questions(analysed)]
    plots = [exposed_plot(name, list(_parts(one))) for name, one in analysed.items()]
    drawn = [plot for plot in plots if plot is not None]
    return Section("captures", "Captures", [PROFILED], tables, drawn)


def _taken(run: Run) -> Table:
    rows = []
    for (variant, case), record in run.captures.items():
        window = mapping(record.get("window"))
        analysis = mapping(run.analyses.get((variant, case)))
        failed = text(analysis.get("status")) == "failed"
        rows.append(
            [
                Cell(variant),
                Cell(case),
                cell(record.get("kind")),
                status_cell(record),
                cell(_steps(record)),
                cell(_ended(window)),
                Cell(plain(_window_ms(window))),
                cell(_ranks_kept(record)),
                reason_cell(["not analysed: " + "; ".join(map(str, _reasons(analysis)))])
                if failed and record.get("status") == "ok"
                else reasons_of(record),
            ]
        )
    columns = [
        "Variant", "Case", "Kind", "Status", "Steps asked", "Ended by", "Window ms", "Ranks",
        "Reasons",
    ]  # fmt: skip
    note = "Window: from the order to profile until the traces were there; writing them counts"
    return Table(columns, rows, frozenset({"Steps asked", "Window ms", "Ranks"}), note)


def _asked(record: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(record.get("spec")).get("capture"))


def _steps(record: dict[str, Any]) -> str | None:
    """Return how many steps were asked for, and of which stage where that was said too."""
    steps, stage = integer(record.get("steps_asked")), text(_asked(record).get("stage"))
    return None if steps is None else " ".join([str(steps), *([stage] if stage else [])])


def _ranks_kept(record: dict[str, Any]) -> str | None:
    """Return how many ranks left a trace, or which ones were asked for."""
    kept, count = sequence(_asked(record).get("ranks")), integer(record.get("ranks"))
    if kept:
        return f"only {', '.join(map(str, kept))}"
    return None if count is None else str(count)


def _reasons(record: dict[str, Any]) -> list[Any]:
    return list(sequence(record.get("reasons")))


def _ended(window: dict[str, Any]) -> str | None:
    words = {"steps": "the steps asked for", "stop": "the end of the load"}
    return words.get(str(window.get("ended_by")))


def _window_ms(window: dict[str, Any]) -> float | None:
    start, end = integer(window.get("start_ns")), integer(window.get("end_ns"))
    return None if start is None or end is None else (end - start) / 1e6


def _parts(analysis: dict[str, Any]) -> Iterator[Part]:
    """Yield each rank's figures: of its devices, or of its host where none was traced."""
    for file in map(mapping, sequence(analysis.get("files"))):
        rank = integer(mapping(file.get("file")).get("rank"))
        name = "one file" if rank is None else f"rank {rank}"
        devices = [mapping(one) for one in sequence(file.get("devices"))]
        for device in devices:
            figures = mapping(device.get("figures"))
            whose = name if len(devices) == 1 else f"{name}, device {figures.get('device')}"
            yield whose, {**device, **figures}, True
        if not devices and file.get("host"):
            yield name, mapping(file.get("host")), False


def _ms(value: Any) -> str:
    known = number(value)
    return plain(None if known is None else known / 1e6)


def _share(part: Any, whole: Any) -> str:
    known, of = number(part), number(whole)
    return percent(known / of if known is not None and of else None)


def _classes(figures: dict[str, Any], least: float = _SHOWN) -> str:
    found = [mapping(one) for one in sequence(figures.get("classes"))]
    shown = [
        f"{one.get('id')} {percent(one.get('share'))}"
        for one in found
        if (number(one.get("share")) or 0) >= least and one.get("id") != "unmatched"
    ]
    unmatched = next((one.get("share") for one in found if one.get("id") == "unmatched"), 0.0)
    return ", ".join([*shown, f"unmatched {percent(unmatched)}"])


def _ranks(analysed: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for name, analysis in analysed.items():
        for rank, figures, on_device in _parts(analysis):
            talk = mapping(figures.get("communication"))
            rows.append(
                [
                    Cell(name),
                    Cell(rank),
                    Cell("device" if on_device else "host"),
                    Cell(_ms(figures.get("span_ns"))),
                    Cell(_ms(talk.get("total_ns"))),
                    Cell(_ms(talk.get("exposed_ns"))),
                    Cell(_share(talk.get("exposed_ns"), figures.get("span_ns"))),
                    Cell(_classes(figures)),
                ]
            )
    columns = [
        "Capture", "Rank", "Time of", "Span ms", "Comm ms", "Exposed comm ms", "Exposed, of span",
        "Shares by class",
    ]  # fmt: skip
    note = (
        "Profiled. Shares are of the time in which the device was busy; of a host, where no device "
        "was traced, of its operators' own time. What no class knows is unmatched"
    )
    return Table(columns, rows, frozenset(columns[3:7]), note)


def _phases(analysed: dict[str, dict[str, Any]]) -> list[Table]:
    rows = []
    for name, analysis in analysed.items():
        for rank, figures, _ in _parts(analysis):
            for phase in map(mapping, sequence(figures.get("phases"))):
                rows.append(
                    [
                        Cell(name),
                        Cell(rank),
                        cell(phase.get("phase")),
                        cell(phase.get("steps")),
                        Cell(_ms(phase.get("host_mean_ns"))),
                        Cell(_ms(phase.get("device_span_mean_ns"))),
                        Cell(_classes(phase, 0.05)),
                    ]
                )
    columns = [
        "Capture", "Rank", "Phase", "Steps", "Host ms a step", "Device ms a step", "Most time",
    ]  # fmt: skip
    note = "Profiled. Steps by the names that the engine gives them"
    return [Table(columns, rows, frozenset(columns[3:6]), note)] if rows else []


def _behind(answer: dict[str, Any]) -> str:
    said = []
    for one in [mapping(event) for event in sequence(answer.get("behind"))][:_BEHIND]:
        events, start = integer(one.get("events")), integer(one.get("start_ns"))
        times = f"{events} x " if events is not None and events > 1 else ""
        at = "" if start is None else f", at {start / 1e9:.6f} s"
        name = brief(str(one.get("name")), _NAME)
        said.append(f"{one.get('where')}: {times}{name}, {_ms(one.get('length_ns'))} ms{at}")
    return "; ".join(said)


def _questions(analysed: dict[str, dict[str, Any]]) -> list[Table]:
    tables = []
    for name, analysis in analysed.items():
        rows = []
        for one in map(mapping, sequence(analysis.get("questions"))):
            answer = str(one.get("answer"))
            known = Cell(answer) if one.get("answered") else Cell(answer, tone="muted")
            rows.append([cell(one.get("question")), known, cell(_behind(one))])
        caption = (
            f"Ten questions, {name}: profiled. Of events behind an answer: their number, time "
            "together, and where the longest is on the clock of the trace"
        )
        tables.append(Table(["Question", "Answer", "Events behind it"], rows, caption=caption))
    return tables
