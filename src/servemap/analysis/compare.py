"""One figure of two variants: effect, its interval, the noise floor, and what may be said of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from servemap.analysis.noise import Repeats, pooled_cv, smallest_effect, t_quantile
from servemap.analysis.stats import change_percent

Decision = Literal["better", "worse", "not resolved", "no noise floor"]

TOO_FEW = "too few repeats for this spread"
"""Of an interval that reaches where the quantity cannot be: it says nothing."""

NOTHING_LEFT_PCT = -100.0

LEAST_EFFECT_PCT = 1.0
"""No smaller change counts, however quiet the repeats were: few of them are quiet by chance."""


class Comparison(NamedTuple):
    """A change from one variant to another, in percent of the first one's mean.

    `floor_pct` is the smallest change that these repeats can show; without repeats there is none.
    `reason` says why there is no interval.
    """

    effect_pct: float
    low_pct: float | None
    high_pct: float | None
    floor_pct: float | None
    decision: Decision
    reason: str = ""


def compare(before: Repeats, after: Repeats, more_is_better: bool) -> Comparison | None:
    """Return how a figure changed; None where one side has no value or the first one is 0.

    The interval is Welch's t interval of the ratio of the means, its variance by the delta method:
    ratio^2 (CV1^2 / n1 + CV2^2 / n2). A change is better or worse only if the interval leaves out 0
    and the change is no smaller than the noise floor. Nothing falls by more than 100 %: an interval
    that reaches below says nothing if it also holds 0 (`TOO_FEW`), else it is cut there.
    """
    effect = change_percent(before.mean, after.mean)
    if effect is None:
        return None
    before, after = _spread_known(before), _spread_known(after)
    pooled = pooled_cv(before, after)
    floor = None if pooled is None else smallest_effect(pooled, before.n, after.n)
    if floor is None or before.cv is None or after.cv is None:
        return Comparison(effect, None, None, None, "no noise floor", "a single repeat on one side")
    parts = (before.cv**2 / before.n, after.cv**2 / after.n)
    half = (1 + effect / 100) * _welch_t(parts, before.n, after.n) * math.sqrt(sum(parts)) * 100
    low, high = effect - abs(half), effect + abs(half)
    floor_pct = max(floor * 100, LEAST_EFFECT_PCT)
    decision: Decision = "not resolved"
    if abs(effect) >= floor_pct and not low <= 0 <= high:
        decision = "better" if (effect > 0) == more_is_better else "worse"
    if low < NOTHING_LEFT_PCT and high >= 0:
        return Comparison(effect, None, None, floor_pct, decision, TOO_FEW)
    return Comparison(effect, max(low, NOTHING_LEFT_PCT), high, floor_pct, decision)


def _spread_known(side: Repeats) -> Repeats:
    """Return repeats that are all 0 with the spread that they have, none: their CV is 0 / 0."""
    return side._replace(cv=0.0) if side.n > 1 and side.mean == 0 else side


def _welch_t(parts: tuple[float, float], n: int, m: int) -> float:
    """Return the t quantile at the degrees of freedom of Welch and Satterthwaite."""
    spread = parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1)
    return t_quantile(sum(parts) ** 2 / spread if spread > 0 else n + m - 2)


def of_row(row: dict[str, Any], figure: str) -> Repeats:
    """Return a figure of a row of aggregate.csv."""
    parts = (row.get(f"{figure}_{part}") for part in ("mean", "cv", "ci95_low", "ci95_high"))
    return Repeats(int(row.get(f"{figure}_n") or 0), *parts)


def more_is_better(figure: str) -> bool:
    """Whether more of a figure of aggregate.csv is better: of all but latencies."""
    return not figure.endswith("_ms")


def reference(
    row: Mapping[str, Any], rows: Iterable[dict[str, Any]], comparable: Iterable[str]
) -> dict[str, Any] | None:
    """Return the row of the best variant that a row may be compared with and that has one.

    Args:
        row: a row of aggregate.csv.
        rows: rows of the same case.
        comparable: the variants that differ in one variable, the best first.
    """
    alike = {
        other["variant"]: other
        for other in rows
        if other["n"] and all(other[key] == row[key] for key in ("lengths", "isl", "osl"))
    }
    return next((alike[name] for name in comparable if name in alike), None)


def compared_variants(
    aggregates: Sequence[dict[str, Any]],
    plan_rows: Iterable[Mapping[str, Any]],
    figures: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """Return {A__B: comparison} of each variant B with the best A that has the same case.

    A comparison has `before`, `after` and `cases`: of each {case, lengths, isl, osl, n_before,
    n_after, starts_before, starts_after, figures: {name: Comparison as a mapping}}.
    """
    names = list(figures)
    allowed = {row["variant"]: list(row.get("compared_with") or []) for row in plan_rows}
    same_case: dict[str, list[dict[str, Any]]] = {}
    for row in aggregates:
        same_case.setdefault(row["case"], []).append(row)
    found: dict[str, dict[str, Any]] = {}
    for row in aggregates:
        base = reference(row, same_case[row["case"]], allowed.get(row["variant"], []))
        if base is None or not row["n"]:
            continue
        changes = {
            name: change._asdict()
            for name in names
            if (change := compare(of_row(base, name), of_row(row, name), more_is_better(name)))
        }
        pair = found.setdefault(
            f"{base['variant']}__{row['variant']}",
            {"before": base["variant"], "after": row["variant"], "cases": []},
        )
        pair["cases"].append(
            {
                **{key: row[key] for key in ("case", "lengths", "isl", "osl")},
                **{f"{key}_before": base[key] for key in ("n", "starts")},
                **{f"{key}_after": row[key] for key in ("n", "starts")},
                "figures": changes,
            }
        )
    return found
