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
from servemap.report.series import PANELS, marks, panel_series

COLOURS = ("#1f5fa8", "#c8571b", "#2f7d4f", "#8a3fa0", "#a8861f", "#4a4a4a", "#b3304e", "#2a8c94")
MOST_TELEMETRY_PLOTS = 40
_FONT = {"family": "system-ui, sans-serif", "size": 12, "color": "#222"}


def throughput_plots(run: Run) -> list[Plot]:
    """Return output and input tok/s over concurrency, one line a variant and length pair."""
    lines: dict[tuple[str, str], list[Row]] = {}
    concurrency = {(r["variant"], r["case"]): r["concurrency"] for r in run.rows}
    for row in run.aggregates:
        if row["n"] and row["isl"] is not None and concurrency[(row["variant"], row["case"])]:
            kind = " (fallback)" if row["lengths"] == "fallback" else ""
            lines.setdefault((row["variant"], f"{row['isl']}/{row['osl']}{kind}"), []).append(row)
    if not lines:
        return []
    figure = make_subplots(
        rows=1, cols=2, subplot_titles=("Output tok/s", "Input tok/s"), horizontal_spacing=0.07
    )
    variants = run.variants
    lengths = list(dict.fromkeys(pair for _, pair in lines))
    dashes = ("solid", "dash", "dot", "dashdot", "longdash")
    for (variant, pair), rows in lines.items():
        points = sorted(rows, key=lambda row: concurrency[(variant, row["case"])])
        colour = COLOURS[variants.index(variant) % len(COLOURS)]
        for column, name in enumerate(("agg_output_tps", "input_tok_s"), 1):
            figure.add_scatter(
                x=[concurrency[(variant, row["case"])] for row in points],
                y=[row[f"{name}_mean"] for row in points],
                error_y=_half_widths(points, name),
                text=[safe(row["case"]) for row in points],
                name=safe(f"{variant}, {pair}"),
                legendgroup=f"{variant} {pair}",
                showlegend=column == 1,
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
    figure.update_yaxes(rangemode="tozero")
    caption = "Throughput over concurrency: means of valid repeats, bars are 95 % intervals"
    return [_plot(figure, caption, 400)]


def _half_widths(rows: list[Row], name: str) -> dict[str, Any]:
    highs, means = ([row[f"{name}_{part}"] for row in rows] for part in ("ci95_high", "mean"))
    widths = [
        None if high is None else high - mean for high, mean in zip(highs, means, strict=True)
    ]
    return {"type": "data", "array": widths, "visible": any(w is not None for w in widths)}


def latency_plots(run: Run) -> list[Plot]:
    """Return TTFT, TPOT and E2E by case: a bar to P50 and a mark at P95, one colour a variant."""
    wanted = [row for row in run.aggregates if row["n"] and row["lengths"] == "planned"]
    if not wanted:
        return []
    cases = [case for case in run.cases if any(row["case"] == case for row in wanted)]
    figures = (("TTFT ms", "ttft"), ("TPOT ms", "tpot"), ("E2E ms", "e2e"))
    figure = make_subplots(
        rows=1,
        cols=3,
        shared_yaxes=True,
        subplot_titles=[title for title, _ in figures],
        horizontal_spacing=0.03,
    )
    for position, variant in enumerate(run.variants):
        own = {row["case"]: row for row in wanted if row["variant"] == variant}
        colour = COLOURS[position % len(COLOURS)]
        labels = [safe(case) for case in cases]
        for column, (_, name) in enumerate(figures, 1):
            figure.add_bar(
                x=[own.get(case, {}).get(f"{name}_p50_ms_mean") for case in cases],
                y=labels,
                orientation="h",
                name=safe(f"{variant}, P50"),
                legendgroup=variant,
                offsetgroup=variant,
                showlegend=column == 1,
                marker={"color": colour, "opacity": 0.75},
                row=1,
                col=column,
            )
            figure.add_scatter(
                x=[own.get(case, {}).get(f"{name}_p95_ms_mean") for case in cases],
                y=labels,
                mode="markers",
                name=safe(f"{variant}, P95"),
                legendgroup=variant,
                offsetgroup=variant,
                showlegend=column == 1,
                marker={
                    "color": colour,
                    "symbol": "line-ns-open",
                    "size": 12,
                    "line": {"width": 3},
                },
                row=1,
                col=column,
            )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_layout(barmode="group", scattermode="group")
    height = 140 + max(len(cases) * (18 + 16 * len(run.variants)), 120)
    return [_plot(figure, "Latency by case, logarithmic: bars end at P50, marks are P95", height)]


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
    figure = make_subplots(rows=1, cols=len(PANELS), subplot_titles=PANELS, horizontal_spacing=0.04)
    for column, series in enumerate(panels, 1):
        for position, (name, times, values) in enumerate(series):
            figure.add_scatter(
                x=times,
                y=values,
                name=safe(name),
                mode="lines",
                line={"color": COLOURS[position % len(COLOURS)], "width": 1.5},
                showlegend=False,
                row=1,
                col=column,
            )
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
    legend = "; ".join(
        f"{title}: {', '.join(name for name, _, _ in series)}"
        for title, series in zip(PANELS, panels, strict=True)
        if len(series) > 1
    )
    shading = "shaded: measured window" + ("; darker: injected request" if injections else "")
    caption = f"{repeat.case}, {repeat.variant} r{repeat.repeat} ({shading}). {legend}"
    return _plot(figure, caption, 230)


def _plot(figure: Any, caption: str, height: int) -> Plot:
    figure.update_layout(
        template="none",
        height=height,
        font=_FONT,
        paper_bgcolor="#fff",
        plot_bgcolor="#fff",
        margin={"l": 48, "r": 16, "t": 34, "b": 40},
        legend={"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0},
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
