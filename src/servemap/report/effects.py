"""Section on what injected requests did to the load beside them."""

from typing import Any

from servemap.analysis.metrics import INJECTED, pick
from servemap.analysis.stats import P99_SAMPLES
from servemap.parsers.values import mapping
from servemap.report.document import MISSING, Cell, Section, Table, Tone
from servemap.report.numbers import change, plain
from servemap.report.run import Run

_COMPARED_TITLES = {
    "agg_output_tps": "Output tok/s",
    "ttft_p95_s": "TTFT P95 ms",
    "tpot_p50_s": "TPOT P50 ms",
    "tpot_p95_s": "TPOT P95 ms",
    "itl_p99_s": "ITL P99 ms",
    "itl_max_s": "ITL max ms",
    "e2e_p95_s": "E2E P95 ms",
    "req_output_tps_p10": "Output TPS P10",
}
_INJECTED_TITLES = {
    "TTFT P50 ms": "ttft_s.p50",
    "TTFT max ms": "ttft_s.max",
    "E2E P50 ms": "e2e_s.p50",
    "E2E max ms": "e2e_s.max",
}
_MORE_IS_BETTER = ("agg_output_tps", "req_output_tps_p10")


def interference(run: Run) -> Section:
    """What injected requests did to the steady stream beside them."""
    changes: list[list[Cell]] = []
    gaps: list[list[Cell]] = []
    own: list[list[Cell]] = []
    for repeat in run.valid:
        label = [Cell(repeat.case), Cell(f"{repeat.variant} r{repeat.repeat}")]
        for segment in repeat.segments:
            if injected := mapping(mapping(segment.get("streams")).get(INJECTED)):
                own.append([*label, *_injected_cells(injected)])
        for stream, found in mapping(repeat.metrics.get("interference")).items():
            compared = mapping(mapping(found).get("change"))
            changes.append(
                [*label, Cell(stream), *(_change_cell(compared, f) for f in _COMPARED_TITLES)]
            )
            for tag in ("overlaps_injection", "steady"):
                block = mapping(mapping(found).get("itl_s")).get(tag)
                gaps.append([*label, Cell(stream), Cell(tag.replace("_", " ")), *_gap_cells(block)])
    if not changes and not own:
        return Section(
            "interference", "Mixed interference", ["No valid case with an injection was measured."]
        )
    columns = ["Case", "Variant", "Stream", *_COMPARED_TITLES.values()]
    table = Table(
        columns,
        changes,
        frozenset(columns[3:]),
        "The steady stream without and with the injection, each over its own window",
    )
    columns = [
        "Case",
        "Variant",
        "Stream",
        "Gaps that",
        "n",
        "ITL P50 ms",
        "ITL P95 ms",
        "ITL P99 ms",
        "ITL max ms",
    ]
    tagged = Table(
        columns,
        gaps,
        frozenset(columns[4:]),
        "ITL of the injected segment, by whether the gap overlaps an injected request",
    )
    columns = ["Case", "Variant", "Requests", "Succeeded", "ISL mean", *_INJECTED_TITLES]
    requests = Table(columns, own, frozenset(columns[2:]), "The injected requests themselves")
    return Section("interference", "Mixed interference", tables=[table, requests, tagged])


def _injected_cells(block: dict[str, Any]) -> list[Cell]:
    ok, tokens = pick(block, "ok"), pick(block, "tokens.input_actual")
    values = (pick(block, path) for path in _INJECTED_TITLES.values())
    return [
        Cell(plain(pick(block, "requests"))),
        Cell(plain(ok)),
        Cell(plain(tokens / ok if tokens is not None and ok else None)),
        *(Cell(plain(None if value is None else value * 1e3)) for value in values),
    ]


def _change_cell(compared: dict[str, Any], figure: str) -> Cell:
    factor = 1 if figure in _MORE_IS_BETTER else 1e3
    sides = [pick(compared, f"{figure}.{side}") for side in ("control", "injected")]
    if sides == [None, None]:
        return MISSING
    before, after = (plain(None if side is None else side * factor) for side in sides)
    delta = pick(compared, f"{figure}.change_pct")
    tone: Tone = ""
    if delta is not None and abs(delta) >= 1:
        tone = "good" if (delta > 0) == (figure in _MORE_IS_BETTER) else "bad"
    return Cell(f"{before} → {after}", change(delta), tone)


def _gap_cells(block: Any) -> list[Cell]:
    n = pick(block, "n")
    cells = [Cell(plain(n))]
    for point in ("p50", "p95", "p99", "max"):
        value = pick(block, point)
        flag = "n < 100" if point == "p99" and n is not None and n < P99_SAMPLES else ""
        cells.append(Cell(plain(None if value is None else value * 1e3), flag))
    return cells
