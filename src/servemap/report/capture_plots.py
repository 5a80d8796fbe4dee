"""Exposed time by class of work and rank of each capture, as stacked bars; marked as profiled."""

from collections.abc import Sequence
from typing import Any

from servemap.parsers.values import mapping, number, sequence, text
from servemap.report.document import Plot
from servemap.report.figure import colour_of, grid, safe

Bar = tuple[str, dict[str, Any], bool]
"""One rank: its name, its figures, whether they are of a device."""

_UNMATCHED = "#b8b8b8"
_MOST_CLASSES = 8
"""Classes with a colour of their own; what is left is drawn together."""

_OTHERS = "other classes"


def exposed_plot(capture: str, bars: Sequence[Bar]) -> Plot | None:
    """Return the plot of one capture; None where no rank has a time by class."""
    times = [(name, _by_class(figures)) for name, figures, _ in bars]
    if not any(by_class for _, by_class in times):
        return None
    sums: dict[str, float] = {}
    for _, by_class in times:
        for name, ms in by_class.items():
            sums[name] = sums.get(name, 0.0) + ms
    known = sorted((name for name in sums if name != "unmatched"), key=lambda name: -sums[name])
    drawn = [(name, [name]) for name in known[:_MOST_CLASSES]]
    drawn += [(_OTHERS, known[_MOST_CLASSES:])] if known[_MOST_CLASSES:] else []
    drawn += [("unmatched", ["unmatched"])] if "unmatched" in sums else []
    height = 150 + 26 * len(bars)
    on_device = all(device for _, _, device in bars)
    figure = grid(["exposed ms on the device" if on_device else "own ms of operators"], 0, height)
    for position, (label, names) in enumerate(drawn):
        grey = label in ("unmatched", _OTHERS)
        figure["data"].append(
            {
                "type": "bar",
                "orientation": "h",
                "name": safe(label),
                "y": [safe(name) for name, _ in times],
                "x": [sum(by_class.get(name, 0.0) for name in names) for _, by_class in times],
                "marker": {"color": _UNMATCHED if grey else colour_of(position)},
                "xaxis": "x",
                "yaxis": "y",
            }
        )
        if label == _OTHERS:
            figure["data"][-1]["marker"]["pattern"] = {"shape": "/"}
    figure["layout"]["barmode"] = "stack"
    figure["layout"]["yaxis"] |= {"autorange": "reversed", "automargin": True, "type": "category"}
    figure["layout"]["xaxis"]["rangemode"] = "tozero"
    return Plot(f"Exposed time by class and rank, {capture}: profiled", figure, height)


def _by_class(figures: dict[str, Any]) -> dict[str, float]:
    """Return the exposed time of each class, ms."""
    found = {}
    for one in map(mapping, sequence(figures.get("classes"))):
        name, ns = text(one.get("id")), number(one.get("exposed_ns"))
        if name is not None and ns:
            found[name] = ns / 1e6
    return found
