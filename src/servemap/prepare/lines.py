"""What a check of a node found, and the table of all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from tabulate import tabulate

State = Literal["ok", "warn", "FAIL", "?"]
WAITS = "mend the line above first"
"""Remedy of a check that another one keeps from being made."""
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
    """Return the lines as a table, node by node in the order they have.

    Checks of a node that wait for the same other one stand in one line.
    """
    rows = [[line.node, line.check, line.state, line.seen, line.remedy] for line in folded(lines)]
    headers = ["node", "check", "state", "seen", "to do"]
    return tabulate(rows, headers=headers, tablefmt="simple", maxcolwidths=WIDTHS)


def folded(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with those in a row that wait for the line above them in one."""
    groups = groupby(lines, lambda line: (line.node, line.remedy == WAITS, line.seen))
    found: list[Line] = []
    for (_, waits, _), group in groups:
        members = list(group)
        if waits and len(members) > 1:
            names = ", ".join(line.check for line in members)
            seen = f"{members[0].seen}: {names}"
            members = [replace(members[0], check=f"{len(members)} more checks", seen=seen)]
        found += members
    return found


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
