"""Figures of the report: throughput over concurrency, latency by case, telemetry in the window.

Only valid repeats are drawn. Figures are plotly's JSON (`data`, `layout`), built directly: its
Python objects take a quarter of a second each. Labels are escaped, as plotly reads markup in them.
"""

from typing import Any

from servemap.analysis.repeats import Repeat
from servemap.analysis.summary import Row
from servemap.report.document import Plot
from servemap.report.figure import INK, Figure, colour_of, grid, line_of, safe, suffix_of
from servemap.report.run import Run
from servemap.report.series import PANELS, Series, marks, panel_gaps, panel_series

MOST_TELEMETRY_PLOTS = 40

_SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon",
    "cross", "hexagram",
)  # fmt: skip

# Names of lines that fit in a row above a panel, and the height of one more such row.
_PANEL_CHARS = 38
_ROW_PX = 16


def throughput_plots(run: Run) -> list[Plot]:
    """Return output and input tok/s over concurrency, one line a variant and length pair.

    Colours tell variants apart, symbols length pairs; a pair of one point is also written there.
    """
    # A mixed case's background is no point of the map: it is there twice, once disturbed. Repeats
    # of a search may end at different levels.
    concurrency = {
        (r["variant"], r["case"]): r["concurrency"]
        for r in run.rows
        if r["kind"] not in ("mixed", "search")
    }
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in run.aggregates:
        if row["n"] and row["isl"] is not None and concurrency.get((row["variant"], row["case"])):
            kind = " (fallback)" if row["lengths"] == "fallback" else ""
            lines.setdefault((row["variant"], f"{row['isl']}/{row['osl']}{kind}"), []).append(row)
    if not lines:
        return []
    figure = grid(("Output tok/s", "Input tok/s, logarithmic"), 0.07, 400)
    lengths = list(dict.fromkeys(pair for _, pair in lines))
    written: set[str] = set()
    for (variant, pair), rows in lines.items():
        points = sorted(rows, key=lambda row: concurrency[(row["variant"], row["case"])])
        colour = colour_of(run.variants.index(variant))
        symbol = _SYMBOLS[lengths.index(pair) % len(_SYMBOLS)]
        # Variants lie close together: the text at the first one's point is enough.
        label = safe(pair) if len(rows) == 1 and pair not in written else ""
        written.add(pair)
        for panel, name in enumerate(("agg_output_tps", "input_tok_s")):
            if name == "agg_output_tps" and points[0]["osl"] == 1:
                continue  # a prefill case's one token is no output throughput
            figure["data"].append(
                line_of(panel, variant, colour)
                | {
                    "x": [concurrency[(variant, row["case"])] for row in points],
                    "y": [row[f"{name}_mean"] for row in points],
                    "error_y": _half_widths(points, name),
                    "hovertext": [safe(row["case"]) for row in points],
                    "text": [label] * len(points),
                    "textposition": "top right",
                    "textfont": {"size": 11},
                    "mode": "lines+markers+text" if label else "lines+markers",
                    "cliponaxis": False,
                    "name": safe(f"{variant}, {pair}"),
                    "legendgroup": safe(f"{variant} {pair}"),
                    "showlegend": name == "input_tok_s",
                    "line": {"color": colour, "width": 1.5},
                    "marker": {"color": colour, "size": 9, "symbol": symbol},
                }
            )
    values = sorted({value for value in concurrency.values() if value})
    ticks = {"type": "log", "tickvals": values, "ticktext": [str(value) for value in values]}
    for suffix in ("", "2"):
        figure["layout"][f"xaxis{suffix}"] |= {**ticks, "title": {"text": "concurrency"}}
    figure["layout"]["yaxis"]["rangemode"] = "tozero"
    figure["layout"]["yaxis2"]["type"] = "log"
    caption = "Throughput over concurrency: means, bars are 95 % intervals of three or more repeats"
    return [Plot(caption, figure, 400)]


def _half_widths(rows: list[Row], name: str) -> dict[str, Any]:
    # Two repeats have an interval of 9 standard deviations, which would hide every other point; one
    # that reaches below 0 says nothing.
    widths = [
        row[f"{name}_ci95_high"] - row[f"{name}_mean"]
        if row[f"{name}_n"] > 2 and row[f"{name}_ci95_low"] >= 0
        else None
        for row in rows
    ]
    return {"type": "data", "array": widths, "visible": any(w is not None for w in widths)}


def latency_plots(run: Run) -> list[Plot]:
    """Return TTFT, TPOT and E2E by case: from P50 over P95 to P99, one colour a variant."""
    points = latency_points(run)
    if not points:
        return []
    cases = [c for c in run.cases if any(case == c for _, case, _ in points)]
    variants = [v for v in run.variants if any(variant == v for variant, _, _ in points)]
    height = max(150 + len(cases) * (20 + 12 * len(variants)), 280)
    figure = grid(("TTFT ms", "TPOT ms", "E2E ms"), 0.03, height)
    step = 0.7 / len(variants)
    for position, variant in enumerate(variants):
        colour = colour_of(position)
        shift = (position - (len(variants) - 1) / 2) * step
        for panel, name in enumerate(("ttft", "tpot", "e2e")):
            x: list[float | None] = []
            y: list[float | None] = []
            for index, case in enumerate(cases):
                x += [*points.get((variant, case, name), (None, None, None)), None]
                y += [index + shift] * 3 + [None]
            marker = {
                "color": colour,
                "size": [9, 13, 8, 1] * len(cases),
                "symbol": ["circle", "line-ns-open", "x-thin-open", "circle"] * len(cases),
                "line": {"width": 2, "color": colour},
            }
            trace = {"x": x, "y": y, "marker": marker, "showlegend": panel == 0}
            figure["data"].append(line_of(panel, variant, colour) | trace)
    for suffix in ("", "2", "3"):
        figure["layout"][f"xaxis{suffix}"]["type"] = "log"
        figure["layout"][f"yaxis{suffix}"] |= {
            "range": [len(cases) - 0.5, -0.5],
            "tickvals": list(range(len(cases))),
            "ticktext": [safe(case) for case in cases],
            "automargin": True,
            "showticklabels": suffix == "",
        }
    caption = "Latency by case, logarithmic: dot P50, bar P95, cross P99 (means of valid repeats)"
    return [Plot(caption, figure, height)]


Percentiles = tuple[float | None, float | None, float | None]


def latency_points(run: Run) -> dict[tuple[str, str, str], Percentiles]:
    """Return (P50, P95, P99) in ms by variant, case and latency: means over the valid repeats."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in run.rows:
        if row["verdict"] == "valid" and row["lengths"] == "planned":
            groups.setdefault((row["variant"], row["case"]), []).append(row)

    def mean(rows: list[Row], column: str) -> float | None:
        known = [row[column] for row in rows if row[column] is not None]
        return sum(known) / len(known) if known else None

    return {
        (variant, case, name): (
            mean(rows, f"{name}_p50_ms"),
            mean(rows, f"{name}_p95_ms"),
            mean(rows, f"{name}_p99_ms"),
        )
        for (variant, case), rows in groups.items()
        for name in ("ttft", "tpot", "e2e")
    }


def telemetry_plots(run: Run) -> tuple[list[Plot], int]:
    """Return a figure of each valid case and variant (first valid repeat), and how many more."""
    first: dict[tuple[str, str], Repeat] = {}
    for repeat in run.valid:
        first.setdefault((repeat.case, repeat.variant), repeat)
    order = sorted(first.values(), key=lambda repeat: run.cases.index(repeat.case))
    plots = [_telemetry(repeat) for repeat in order[:MOST_TELEMETRY_PLOTS]]
    return [plot for plot in plots if plot is not None], max(len(order) - MOST_TELEMETRY_PLOTS, 0)


def _telemetry(repeat: Repeat) -> Plot | None:
    panels = panel_series(repeat)
    if not any(panels):
        return None
    titles = [_title(title, series) for title, series in zip(PANELS, panels, strict=True)]
    height = 250 + _ROW_PX * max(0, *(title.count("<br>") - 1 for title in titles))
    figure = grid(titles, 0.04, height)
    figure["layout"]["margin"]["t"] += height - 250
    segments, injections = marks(repeat)
    gaps = panel_gaps(repeat)
    shades = [
        *((s, "#1f5fa8", 0.07) for s in segments),
        *((i, "#c8571b", 0.18) for i in injections),
    ]
    for panel, series in enumerate(panels):
        suffix = suffix_of(panel)
        for position, line in enumerate(series):
            colour = colour_of(position)
            figure["data"].append(
                line_of(panel, line.name, colour)
                | {"x": line.seconds, "y": line.values, "showlegend": False}
                | {"line": {"color": colour, "width": 1.5}, "marker": {"size": 3, "color": colour}}
            )
        if not series:
            figure["layout"]["annotations"].append(_nothing(suffix))
            figure["data"].append(line_of(panel, "", INK) | {"x": [None], "y": [None]})
            figure["data"][-1]["showlegend"] = False
        figure["layout"][f"yaxis{suffix}"]["rangemode"] = "tozero"
        figure["layout"][f"xaxis{suffix}"]["title"] = {"text": "s", "standoff": 2}
        figure["layout"]["shapes"] += [
            _shade(suffix, interval, colour, opacity)
            for interval, colour, opacity in (*shades, *((g, INK, 0.25) for g in gaps[panel]))
        ]
    shading = "shaded: measured window" + ("; darker: injected request" if injections else "")
    shading += "; grey: no sample for more than three intervals" if any(gaps) else ""
    return Plot(f"{repeat.case}, {repeat.variant} r{repeat.repeat} ({shading})", figure, height)


def _title(panel: str, series: list[Series]) -> str:
    """Return a panel's title, with the names of its lines in their colours."""
    if len(series) < 2:
        return panel
    rows: list[list[str]] = []
    used = _PANEL_CHARS
    for position, line in enumerate(series):
        if used + len(line.name) >= _PANEL_CHARS:
            rows.append([])
            used = 0
        used += len(line.name) + 1
        rows[-1].append(f'<span style="color:{colour_of(position)}">{safe(line.name)}</span>')
    return panel + "".join(f"<br><sup>{' '.join(row)}</sup>" for row in rows)


def _shade(suffix: str, interval: tuple[float, float], colour: str, opacity: float) -> Figure:
    return {
        "type": "rect",
        "xref": f"x{suffix}",
        "yref": f"y{suffix} domain",
        "x0": interval[0],
        "x1": interval[1],
        "y0": 0,
        "y1": 1,
        "fillcolor": colour,
        "opacity": opacity,
        "line": {"width": 0},
        "layer": "below",
    }


def _nothing(suffix: str) -> Figure:
    return {
        "text": "no samples",
        "showarrow": False,
        "xref": f"x{suffix} domain",
        "yref": f"y{suffix} domain",
        "x": 0.5,
        "y": 0.5,
    }
