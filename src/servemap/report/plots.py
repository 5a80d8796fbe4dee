"""Figures of the report: throughput over concurrency, latency by case, telemetry in the window.

Only valid repeats are drawn. Text goes to plotly escaped, since plotly reads labels as markup.
"""

import json
from html import escape
from typing import Any

from plotly.subplots import make_subplots

from servemap.analysis.repeats import Repeat
from servemap.analysis.summary import Row
from servemap.parsers.values import mapping
from servemap.report.document import Plot
from servemap.report.run import Run
from servemap.report.series import PANELS, Series, marks, panel_series

COLOURS = ("#1f5fa8", "#c8571b", "#2f7d4f", "#8a3fa0", "#a8861f", "#4a4a4a", "#b3304e", "#2a8c94")
MOST_TELEMETRY_PLOTS = 40
_FONT = {"family": "system-ui, sans-serif", "size": 12, "color": "#222"}


def throughput_plots(run: Run) -> list[Plot]:
    """Return output and input tok/s over concurrency, one line a variant and length pair."""
    lines: dict[tuple[str, str], list[Row]] = {}
    # A mixed case's background is no point of the map: it is there twice, once disturbed.
    concurrency = {
        (r["variant"], r["case"]): r["concurrency"] for r in run.rows if r["kind"] != "mixed"
    }
    for row in run.aggregates:
        if row["n"] and row["isl"] is not None and concurrency.get((row["variant"], row["case"])):
            kind = " (fallback)" if row["lengths"] == "fallback" else ""
            lines.setdefault((row["variant"], f"{row['isl']}/{row['osl']}{kind}"), []).append(row)
    if not lines:
        return []
    figure = make_subplots(
        rows=1,
        cols=2,
        subplot_titles=("Output tok/s", "Input tok/s, logarithmic"),
        horizontal_spacing=0.07,
    )
    variants = run.variants
    lengths = list(dict.fromkeys(pair for _, pair in lines))
    dashes = ("solid", "dash", "dot", "dashdot", "longdash")
    for (variant, pair), rows in lines.items():
        points = sorted(rows, key=lambda row: concurrency[(variant, row["case"])])
        colour = COLOURS[variants.index(variant) % len(COLOURS)]
        for column, name in enumerate(("agg_output_tps", "input_tok_s"), 1):
            if name == "agg_output_tps" and points[0]["osl"] == 1:
                continue  # a prefill case's one token is no output throughput
            figure.add_scatter(
                x=[concurrency[(variant, row["case"])] for row in points],
                y=[row[f"{name}_mean"] for row in points],
                error_y=_half_widths(points, name),
                text=[safe(row["case"]) for row in points],
                name=safe(f"{variant}, {pair}"),
                legendgroup=f"{variant} {pair}",
                showlegend=name == "input_tok_s",
                mode="lines+markers",
                line={"color": colour, "dash": dashes[lengths.index(pair) % len(dashes)]},
                marker={"color": colour, "size": 8},
                row=1,
                col=column,
            )
    ticks = sorted({c for c in concurrency.values() if c})
    figure.update_xaxes(
        title_text="concurrency", type="log", tickvals=ticks, ticktext=list(map(str, ticks))
    )
    figure.update_yaxes(rangemode="tozero", col=1)
    figure.update_yaxes(type="log", col=2)
    caption = "Throughput over concurrency: means of valid repeats, bars are 95 % intervals"
    return [_plot(figure, caption, 400)]


def _half_widths(rows: list[Row], name: str) -> dict[str, Any]:
    highs, means = ([row[f"{name}_{part}"] for row in rows] for part in ("ci95_high", "mean"))
    widths = [
        None if high is None else high - mean for high, mean in zip(highs, means, strict=True)
    ]
    return {"type": "data", "array": widths, "visible": any(w is not None for w in widths)}


def latency_plots(run: Run) -> list[Plot]:
    """Return TTFT, TPOT and E2E by case: from P50 over P95 to P99, one colour a variant."""
    wanted = [row for row in run.aggregates if row["n"] and row["lengths"] == "planned"]
    if not wanted:
        return []
    points = latency_points(run)
    cases = [case for case in run.cases if any(row["case"] == case for row in wanted)]
    variants = [name for name in run.variants if any(row["variant"] == name for row in wanted)]
    figure = make_subplots(
        rows=1,
        cols=3,
        shared_yaxes=True,
        subplot_titles=("TTFT ms", "TPOT ms", "E2E ms"),
        horizontal_spacing=0.03,
    )
    step = 0.7 / len(variants)
    for position, variant in enumerate(variants):
        colour = COLOURS[position % len(COLOURS)]
        shift = (position - (len(variants) - 1) / 2) * step
        for column, name in enumerate(("ttft", "tpot", "e2e"), 1):
            x: list[float | None] = []
            y: list[float | None] = []
            for index, case in enumerate(cases):
                x += [*points.get((variant, case, name), (None, None, None)), None]
                y += [index + shift] * 3 + [None]
            figure.add_scatter(
                x=x,
                y=y,
                mode="lines+markers",
                name=safe(variant),
                legendgroup=variant,
                showlegend=column == 1,
                line={"color": colour, "width": 1.5},
                marker={
                    "color": colour,
                    "size": [9, 13, 8, 0] * len(cases),
                    "symbol": ["circle", "line-ns-open", "x-thin-open", "circle"] * len(cases),
                    "line": {"width": 2, "color": colour},
                },
                row=1,
                col=column,
            )
    figure.update_yaxes(
        range=[len(cases) - 0.5, -0.5],
        tickvals=list(range(len(cases))),
        ticktext=[safe(case) for case in cases],
        automargin=True,
    )
    figure.update_xaxes(type="log")
    caption = "Latency by case, logarithmic: dot P50, bar P95, cross P99 (means of valid repeats)"
    return [_plot(figure, caption, 150 + len(cases) * (20 + 12 * len(variants)))]


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
    figure = make_subplots(rows=1, cols=len(PANELS), subplot_titles=titles, horizontal_spacing=0.04)
    for column, series in enumerate(panels, 1):
        for position, (name, times, values) in enumerate(series):
            figure.add_scatter(
                x=times,
                y=values,
                name=safe(name),
                mode="lines+markers",
                line={"color": COLOURS[position % len(COLOURS)], "width": 1.5},
                marker={"size": 3},
                showlegend=False,
                row=1,
                col=column,
            )
        if not series:
            figure.add_annotation(
                text="no samples", showarrow=False, xref="x domain", yref="y domain", x=0.5, y=0.5,
                row=1, col=column,
            )  # fmt: skip
            figure.add_scatter(x=[None], y=[None], showlegend=False, row=1, col=column)
    segments, injections = marks(repeat)
    for column in range(1, len(PANELS) + 1):
        for begin, end in segments:
            figure.add_vrect(
                x0=begin,
                x1=end,
                fillcolor="#1f5fa8",
                opacity=0.07,
                line_width=0,
                layer="below",
                row=1,
                col=column,
            )
        for begin, end in injections:
            figure.add_vrect(
                x0=begin,
                x1=end,
                fillcolor="#c8571b",
                opacity=0.18,
                line_width=0,
                layer="below",
                row=1,
                col=column,
            )
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="s", title_standoff=2)
    shading = "shaded: measured window" + ("; darker: injected request" if injections else "")
    return _plot(figure, f"{repeat.case}, {repeat.variant} r{repeat.repeat} ({shading})", 250)


def _title(panel: str, series: list[Series]) -> str:
    """Return a panel's title, with the names of its lines in their colours."""
    if len(series) < 2:
        return panel
    names = " ".join(
        f'<span style="color:{COLOURS[position % len(COLOURS)]}">{safe(line.name)}</span>'
        for position, line in enumerate(series)
    )
    return f"{panel}<br><sup>{names}</sup>"


def _plot(figure: Any, caption: str, height: int) -> Plot:
    figure.update_layout(
        template="none",
        height=height,
        font=_FONT,
        paper_bgcolor="#fff",
        plot_bgcolor="#fff",
        margin={"l": 48, "r": 16, "t": 46, "b": 40},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0},
        hoverlabel={"namelength": -1},
    )
    figure.update_xaxes(gridcolor="#e6e6e6", zeroline=False, linecolor="#999", ticks="outside")
    figure.update_yaxes(gridcolor="#e6e6e6", zeroline=False, linecolor="#999")
    figure.update_annotations(font={"size": 13, "color": "#222"})
    content = mapping(json.loads(figure.to_json()))
    return Plot(caption, {"data": content["data"], "layout": content["layout"]}, height)


def safe(label: str) -> str:
    """Return a label that plotly shows as it is, whatever markup it holds."""
    return escape(label, quote=False)
