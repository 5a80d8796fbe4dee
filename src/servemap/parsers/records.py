"""What telemetry parsers find: samples, and what was left out and why."""

from collections.abc import Iterable
from typing import NamedTuple


class Skipped(NamedTuple):
    """One piece of input that gave nothing: its line number (1-based) and the reason."""

    line: int
    reason: str


class Sample(NamedTuple):
    """One value on the clock of the node that took it.

    A gauge has `from_ns is None` and belongs to `t_ns`. A rate belongs to the interval
    (from_ns, t_ns] and carries the interval's end as its time.
    """

    t_ns: int
    from_ns: int | None
    entity: str
    metric: str
    unit: str
    value: float


def skip_summary(skipped: Iterable[Skipped], limit: int = 5) -> list[str]:
    """Return at most `limit` sentences, one a reason: how often and first at which line."""
    first: dict[str, int] = {}
    count: dict[str, int] = {}
    for item in skipped:
        first.setdefault(item.reason, item.line)
        count[item.reason] = count.get(item.reason, 0) + 1
    lines = [
        f"{reason} (line {first[reason]})"
        if count[reason] == 1
        else f"{reason} ({count[reason]} lines, first {first[reason]})"
        for reason in first
    ]
    if len(lines) > limit:
        lines = [*lines[: limit - 1], f"{len(lines) - limit + 1} more reasons"]
    return lines
