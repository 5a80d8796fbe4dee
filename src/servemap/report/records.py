"""What sections on records beside the cases share; and the section on what figures mean."""

from typing import Any

from servemap.analysis.definitions import definitions
from servemap.parsers.values import mapping, sequence, text
from servemap.report.document import Cell, Section, Table, Tone
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
