"""Sections on load against latency: curves, each as one table and plot, and searches."""

from typing import Any, NamedTuple

from pydantic import ValidationError

from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat
from servemap.model.cases import CurveCase
from servemap.model.curves import point_id
from servemap.model.search import say_level
from servemap.parsers.values import mapping, number, sequence, text
from servemap.report.document import MISSING, Cell, Plot, Section, Table, Tone, cell
from servemap.report.figure import Figure, colour_of, grid, line_of, safe
from servemap.report.numbers import percent, plain
from servemap.report.run import Run
from servemap.report.slo import say_slo

HEIGHT = 360
PANELS = (("TTFT P95 ms", "ttft_p95_ms"), ("TPOT P95 ms", "tpot_p95_ms"))
_COLUMNS = {
    "Output tok/s": "agg_output_tps_mean",
    "Request/s": "request_s_mean",
    "TTFT P50 ms": "ttft_p50_ms_mean",
    "TTFT P95 ms": "ttft_p95_ms_mean",
    "TPOT P50 ms": "tpot_p50_ms_mean",
    "TPOT P95 ms": "tpot_p95_ms_mean",
    "E2E P95 ms": "e2e_p95_ms_mean",
}
_ANSWERS = {
    "within_slo": "Most within SLO",
    "most_succeeded": "Most without a failed request, of the levels probed",
    "most_throughput": "Most throughput, of the levels probed",
}
_TONES: dict[str, Tone] = {"met": "good", "missed": "warn", "invalid": "bad"}


class Point(NamedTuple):
    """A level of a line: its throughput (output tok/s) and latencies (ms), None where missing."""

    level: float
    output_tps: float | None
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None


def curves(run: Run) -> Section | None:
    """Each curve's points in one table and plot; None where the campaign has no curve."""
    tables, plots = [], []
    for name, unit, levels in _curves(run):
        rows, lines = [], {}
        for variant in run.variants:
            found = {
                row["case"]: row
                for row in run.aggregates
                if row["variant"] == variant and row["lengths"] == "planned"
            }
            points: list[Point] = []
            for case, level in levels.items():
                row = found.get(case)
                if row is None:
                    continue
                first = Cell(variant) if not points else Cell("")
                rows.append([first, Cell(f"{level:g}"), *_point_cells(row)])
                points.append(
                    Point(
                        level,
                        row["agg_output_tps_mean"],
                        row["ttft_p95_ms_mean"],
                        row["tpot_p95_ms_mean"],
                    )
                )
            lines[variant] = points
        columns = ["Variant", unit, "Valid", *_COLUMNS]
        caption = f"{name}: means over valid repeats"
        tables.append(Table(columns, rows, frozenset(columns[1:]), caption, groups=True))
        plots += _plot(
            f"{name}: latency over throughput; each point is a {unit.split()[0].lower()}", lines
        )
    return Section("curves", "Curves", [], tables, plots) if tables else None


def _curves(run: Run) -> list[tuple[str, str, dict[str, float]]]:
    """Return each curve's id, what its levels are, and {id of a point: level}."""
    found = []
    for written in map(mapping, sequence(run.campaign.get("cases"))):
        if written.get("kind") != "curve":
            continue
        try:
            curve = CurveCase.model_validate(written)
        except ValidationError:
            continue  # a damaged manifest: its points are still in the section on cases
        levels = [*curve.concurrencies, *curve.rates_rps]
        unit = "Concurrency" if curve.concurrencies else "Rate req/s"
        found.append((curve.id, unit, {point_id(curve, level): level for level in levels}))
    return found


def _point_cells(row: dict[str, Any]) -> list[Cell]:
    valid = Cell(f"{row['n']}/{row['planned']}", tone="" if row["n"] else "bad")
    return [valid, *(Cell(plain(row[key])) for key in _COLUMNS.values())]


def searches(run: Run) -> Section | None:
    """The three answers of each search and its probes; None where no search was derived."""
    answers, probes, lines = [], [], {}
    for repeat in run.valid:
        found = mapping(repeat.metrics.get("search"))
        if not found:
            continue
        label = f"{repeat.variant} r{repeat.repeat}"
        answers += _answer_rows(repeat, label, found)
        probes += _probe_rows(repeat, label, found)
        lines[f"{repeat.case}, {label}"] = _probe_points(repeat, found)
    if not answers:
        return None
    columns = ["Case", "Variant", "Answer", "Level", "Met the SLO", "Request/s", "Output tok/s",
               "Probe", "How it ended"]  # fmt: skip
    first = Table(columns, answers, frozenset(columns[3:7]), groups=True)
    columns = ["Case", "Variant", "Probe", "Level", "Outcome", "Met the SLO", "Failed requests",
               "Output tok/s", "TTFT P95 ms", "TPOT P95 ms", "Reasons"]  # fmt: skip
    second = Table(columns, probes, frozenset(columns[3:4] + columns[5:10]), "Probes in order")
    note = (
        "A level meets the SLO where the share of its requests that the case asks for does, failed "
        "ones counted as missing it. The three answers are different questions; each rests on "
        "valid probes only. A lower bound is no largest level: the search was ended before it. "
        "Levels far above the SLO are not probed: the most without a failed request and the most "
        "throughput are those of the levels probed, and no limits of the server."
    )
    plots = _plot("Searches: latency over throughput; each point is a valid probe", lines)
    return Section("searches", "Searches", [note], [first, second], plots)


def _answer_rows(repeat: Repeat, label: str, found: dict[str, Any]) -> list[list[Cell]]:
    rows = []
    over = text(found.get("over")) or ""
    for key, words in _ANSWERS.items():
        answer = mapping(found.get(key))
        leading = [Cell(""), Cell("")]
        if key == "within_slo":
            leading = [Cell(repeat.case, _asked(found)), Cell(label)]
        level = Cell("none", tone="warn")
        if answer:
            level = Cell(say_level(over, number(answer.get("level")) or 0.0))
        rows.append(
            [
                *leading,
                Cell(words),
                level,
                Cell(percent(answer.get("slo_share"))),
                Cell(plain(answer.get("request_s"))),
                Cell(plain(answer.get("agg_output_tps"))),
                cell(answer.get("probe")),
                _end_cell(key, found),
            ]
        )
    return rows


def _asked(found: dict[str, Any]) -> str:
    """Return the SLO that a search asked for, and of how many requests."""
    share = percent(found.get("slo_share"), 1).replace(".0 %", " %")
    return f"SLO: {say_slo(mapping(found.get('slo')))}, of {share} of the requests"


def _end_cell(answer: str, found: dict[str, Any]) -> Cell:
    if answer != "within_slo":
        return MISSING
    missed = number(found.get("missed_at"))
    said = [text(found.get("said")) or ""]
    said += (
        [] if missed is None else [f"missed at {say_level(text(found.get('over')) or '', missed)}"]
    )
    odd = [str(one) for one in sequence(found.get("non_monotonic"))]
    tone: Tone = "warn" if found.get("lower_bound") or odd else ""
    return Cell("; ".join(said), "; ".join(["not monotonic", *odd]) if odd else "", tone)


def _segments(repeat: Repeat) -> dict[str, dict[str, Any]]:
    return {str(s.get("name")): mapping(s.get("metrics")) for s in repeat.segments}


def _probe_rows(repeat: Repeat, label: str, found: dict[str, Any]) -> list[list[Cell]]:
    figures = _segments(repeat)
    rows = []
    for probe in map(mapping, sequence(found.get("probes"))):
        own = figures.get(str(probe.get("name")), {})
        outcome = text(probe.get("outcome")) or "-"
        shown = outcome != "invalid"
        rows.append(
            [
                Cell(repeat.case),
                Cell(label),
                cell(probe.get("name")),
                _level_cell(found, probe),
                Cell(outcome, tone=_TONES.get(outcome, "")),
                Cell(percent(probe.get("slo_share")) if shown else "-"),
                Cell(plain(probe.get("failed"))),
                Cell(plain(pick(own, "agg_output_tps")) if shown else "-"),
                *(
                    Cell(plain(_ms(pick(own, path))) if shown else "-")
                    for path in ("ttft_s.p95", "tpot_s.p95")
                ),
                cell("; ".join(str(reason) for reason in sequence(probe.get("reasons")))),
            ]
        )
    return rows


def _level_cell(found: dict[str, Any], probe: dict[str, Any]) -> Cell:
    level = number(probe.get("level"))
    return MISSING if level is None else Cell(say_level(text(found.get("over")) or "", level))


def _probe_points(repeat: Repeat, found: dict[str, Any]) -> list[Point]:
    figures = _segments(repeat)
    points = []
    for probe in map(mapping, sequence(found.get("probes"))):
        level, own = number(probe.get("level")), figures.get(str(probe.get("name")), {})
        if probe.get("outcome") != "invalid" and level is not None:
            latencies = (_ms(pick(own, path)) for path in ("ttft_s.p95", "tpot_s.p95"))
            points.append(Point(level, pick(own, "agg_output_tps"), *latencies))
    return sorted(points)


def _ms(value: float | None) -> float | None:
    return None if value is None else 1e3 * value


def _plot(caption: str, lines: dict[str, list[Point]]) -> list[Plot]:
    """Return P95 latencies over output throughput, one line a name, levels beside the points."""
    if not any(point.output_tps is not None for points in lines.values() for point in points):
        return []
    figure: Figure = grid([title for title, _ in PANELS], 0.08, HEIGHT)
    for position, (name, points) in enumerate(lines.items()):
        for panel, (_, field) in enumerate(PANELS):
            figure["data"].append(
                line_of(panel, name, colour_of(position))
                | {
                    "x": [point.output_tps for point in points],
                    "y": [getattr(point, field) for point in points],
                    "text": [safe(f"{point.level:g}") for point in points],
                    "mode": "lines+markers+text",
                    "textposition": "top center",
                    "textfont": {"size": 11},
                    "cliponaxis": False,
                    "showlegend": panel == 0,
                    "marker": {"color": colour_of(position), "size": 8},
                }
            )
    for suffix in ("", "2"):
        figure["layout"][f"xaxis{suffix}"] |= {
            "title": {"text": "output tok/s"},
            "rangemode": "tozero",
        }
        figure["layout"][f"yaxis{suffix}"]["rangemode"] = "tozero"
    return [Plot(caption, figure, HEIGHT)]
