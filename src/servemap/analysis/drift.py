"""Whether later repeats of a variant are faster or slower than earlier ones."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from servemap.analysis.noise import Repeats, repeats
from servemap.analysis.stats import change_percent

FIGURE = "agg_output_tps"
CASES = 3
"""Fewer cases say nothing of a drift that they have in common."""


class CaseDrift(NamedTuple):
    """The last repeat of a case against its first one, in the order of time."""

    case: str
    n: int
    first: float
    last: float
    change_pct: float
    apart_s: float


class Drift(NamedTuple):
    """A variant's cases, and the changes of all of them as repeats of one figure."""

    cases: list[CaseDrift]
    changes: Repeats

    @property
    def seen(self) -> bool | None:
        """Whether the mean change is not 0 by its 95 % t interval; None of too few cases."""
        low, high = self.changes.ci95_low, self.changes.ci95_high
        if self.changes.n < CASES or low is None or high is None:
            return None
        return not low <= 0 <= high


def drift(rows: Iterable[Mapping[str, Any]]) -> Drift:
    """Return how output tok/s moved from the first valid repeat of each case to the last.

    Interleaved repeats put all first ones before all second ones, so a drift moves all cases
    alike; with blocked ones each case has its own few minutes. Fall-back lengths are left out.

    Args:
        rows: rows of summary.csv of one variant.
    """
    timed: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        known = row["start_ns"] is not None and row[FIGURE] is not None
        if known and row["verdict"] == "valid" and row["lengths"] == "planned":
            timed.setdefault(row["case"], []).append((row["start_ns"], row[FIGURE]))
    found = []
    for case, values in timed.items():
        (begin, first), (end, last) = min(values), max(values)
        change = change_percent(first, last)
        if len(values) > 1 and change is not None:
            found.append(CaseDrift(case, len(values), first, last, change, (end - begin) / 1e9))
    return Drift(found, repeats([item.change_pct for item in found]))
