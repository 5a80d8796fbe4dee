"""Parts that all figures of a report share: a row of panels, lines, colours, safe labels."""

from collections.abc import Sequence
from html import escape
from typing import Any

COLOURS = ("#1f5fa8", "#c8571b", "#2f7d4f", "#8a3fa0", "#a8861f", "#4a4a4a", "#b3304e", "#2a8c94")
INK = "#222"
FONT = {"family": "system-ui, sans-serif", "size": 12, "color": INK}

Figure = dict[str, Any]


def grid(titles: Sequence[str], gap: float, height: int) -> Figure:
    """Return an empty figure, one panel a title side by side; `gap` is a share of the width."""
    axis = {"gridcolor": "#e6e6e6", "zeroline": False, "linecolor": "#999", "showline": True}
    layout: Figure = {
        "height": height,
        "font": FONT,
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "margin": {"l": 48, "r": 16, "t": 46, "b": 40},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0},
        "hoverlabel": {"namelength": -1},
        "annotations": [],
        "shapes": [],
    }
    width = (1 - gap * (len(titles) - 1)) / len(titles)
    for panel, title in enumerate(titles):
        suffix, left = suffix_of(panel), panel * (width + gap)
        domain = [left, min(left + width, 1)]
        layout[f"xaxis{suffix}"] = {
            **axis, "domain": domain, "anchor": f"y{suffix}", "ticks": "outside",
        }  # fmt: skip
        layout[f"yaxis{suffix}"] = {**axis, "anchor": f"x{suffix}"}
        layout["annotations"].append(
            {
                "text": title,
                "showarrow": False,
                "font": {"size": 13, "color": INK},
                "xref": "paper",
                "yref": "paper",
                "x": left + width / 2,
                "y": 1,
                "xanchor": "center",
                "yanchor": "bottom",
            }
        )
    return {"data": [], "layout": layout}


def line_of(panel: int, name: str, colour: str) -> Figure:
    """Return a line of a panel without its points."""
    suffix = suffix_of(panel)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name),
        "legendgroup": safe(name),
        "line": {"color": colour, "width": 1.5},
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
    }


def suffix_of(panel: int) -> str:
    """Return what plotly appends to the names of a panel's axes."""
    return "" if panel == 0 else str(panel + 1)


def colour_of(position: int) -> str:
    """Return the colour of the line at a position; after the last they begin again."""
    return COLOURS[position % len(COLOURS)]


def safe(label: str) -> str:
    """Return a label that plotly shows as it is, whatever markup it holds."""
    return escape(label, quote=False)
