"""What a check of a node found, and the table of all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tabulate import tabulate

State = Literal["ok", "warn", "FAIL", "?"]
WIDTHS = [None, None, None, 52, 52]


@dataclass(frozen=True)
class Line:
    """One check of one node.

    Attributes:
        node: the node's id; `here` for this machine as the keeper of the results.
        check: what was looked at.
        state: `?` where it could not be found out.
        seen: what was seen.
        remedy: what to install or mend; empty where the state is ok.
    """

    node: str
    check: str
    state: State
    seen: str
    remedy: str = ""


def ok(node: str, check: str, seen: str) -> Line:
    """Return a line of a check that passed."""
    return Line(node, check, "ok", seen)


def unknown(node: str, check: str, seen: str, remedy: str) -> Line:
    """Return a line of a check whose facts could not be had."""
    return Line(node, check, "?", seen, remedy)


def judged(node: str, check: str, found: Any, judge: Callable[[Mapping[str, Any]], Line]) -> Line:
    """Return what `judge` says of a section of the survey, or that the section has no answer."""
    if isinstance(found, Mapping) and "error" in found and len(found) == 1:
        return unknown(node, check, str(found["error"]), "look at it by hand on the node")
    if not isinstance(found, Mapping):
        return unknown(node, check, "the node's survey says nothing of it", "look at it by hand")
    return judge(found)


def table(lines: Iterable[Line]) -> str:
    """Return the lines as a table, node by node in the order they have."""
    rows = [[line.node, line.check, line.state, line.seen, line.remedy] for line in lines]
    headers = ["node", "check", "state", "seen", "to do"]
    return tabulate(rows, headers=headers, tablefmt="simple", maxcolwidths=WIDTHS)


def count_bytes(value: float) -> str:
    """Return a size with a unit of 1000: `12 kB`, `3.4 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB" if value < 1000 else f"{value:,.0f} TB"


def some(names: Iterable[str], most: int = 4) -> str:
    """Return the first names of many, and how many there are beside."""
    found = list(names)
    left = len(found) - most
    return ", ".join(found[:most]) + (f" and {left} more" if left > 0 else "")
