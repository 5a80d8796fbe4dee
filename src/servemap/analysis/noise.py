"""How far repeats of a figure scatter, and the smallest effect that they can show.

The independent unit is the repeat: requests of one run share its server, its start and its minute,
so an interval over them knows the noise within that run alone (`within_run`). `docs/noise.md` says
which interval answers which question.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 0.05
POWER = 0.8
# The interval of a percentile bootstrap lies between the smallest and the largest repeat, which
# hold the middle of their distribution with 1 - 2^(1 - n): 75 % of three, 97 % of six.
BOOTSTRAP_REPEATS = 6
RESAMPLES = 10_000
SEED = 1979
WITHIN_RUN = (50, 90, 95, 99)

Interval = tuple[float | None, float | None]
"""Lower and upper end; None where the values do not bound it."""


class Repeats(NamedTuple):
    """Repeats of one figure: the coefficient of variation and interval need two of them."""

    n: int
    mean: float | None
    cv: float | None
    ci95_low: float | None
    ci95_high: float | None


def repeats(values: Sequence[float]) -> Repeats:
    """Return mean, CV (sample standard deviation over mean) and the 95 % t interval of the mean."""
    n = len(values)
    if n == 0:
        return Repeats(0, None, None, None, None)
    mean = math.fsum(values) / n
    if n == 1:
        return Repeats(1, mean, None, None, None)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = t_quantile(n - 1) * deviation / math.sqrt(n)
    cv = deviation / abs(mean) if mean else None
    return Repeats(n, mean, cv, mean - half, mean + half)


@cache
def t_quantile(degrees: float) -> float:
    """Return the two-sided 95 % quantile (0.975) of Student's t."""
    return float(_special().stdtrit(degrees, 1 - ALPHA / 2))


def bootstrap_mean(values: Sequence[float]) -> Interval:
    """Return the 95 % percentile bootstrap interval of the mean, the repeat being what is drawn.

    (None, None) for fewer than `BOOTSTRAP_REPEATS`. The draws are the same for every figure and in
    every process. Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if len(values) < BOOTSTRAP_REPEATS:
        return None, None
    means = np.asarray(values, dtype=np.float64)[_draws(len(values))].mean(axis=1)
    low, high = np.percentile(means, (100 * ALPHA / 2, 100 - 100 * ALPHA / 2))
    return float(low), float(high)


@cache
def _draws(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(SEED).integers(0, n, size=(RESAMPLES, n))


def within_run(values: ArrayLike) -> dict[str, list[float | None]] | None:
    """Return 95 % bootstrap intervals of percentiles over the requests of one run.

    That is the noise within the run: nothing of another start, another hour or drift is in it.
    The k-th value of a resample is the value whose rank share is Beta(k, n - k + 1), so the shares
    are drawn and no resample is. An end that even the largest or smallest value is too likely to
    miss is None: P99 has no upper end below 368 requests.

    Returns:
        {p50: [low, high], ...} of `WITHIN_RUN`, in the values' unit; None where there is no value.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = int(ordered.size)
    if n == 0:
        return None
    return {f"p{p}": list(_rank_interval(ordered, p / 100)) for p in WITHIN_RUN}


def _rank_interval(ordered: np.ndarray[Any, Any], q: float) -> Interval:
    n = int(ordered.size)
    low_share, high_share = _rank_shares(n, q)
    low = None if (1 - q) ** n > ALPHA / 2 else float(ordered[max(math.ceil(n * low_share), 1) - 1])
    high = None if q**n > ALPHA / 2 else float(ordered[math.ceil(n * high_share) - 1])
    return low, high


@cache
def _rank_shares(n: int, q: float) -> tuple[float, float]:
    rank = (n - 1) * q + 1
    drawn = np.random.default_rng(SEED).beta(rank, n - rank + 1, size=RESAMPLES)
    low, high = np.quantile(drawn, (ALPHA / 2, 1 - ALPHA / 2))
    return float(low), float(high)


def smallest_effect(cv: float, n: int, other: int | None = None) -> float | None:
    """Return the effect that a two-sided 5 % t test of two groups sees with a power of 80 %.

    The test's t is noncentral with n + m - 2 degrees and noncentrality
    effect / (cv sqrt(1/n + 1/m)): Cohen, Statistical Power Analysis (1988), chapter 2. As in R's
    `power.t.test`, findings in the wrong direction are not counted, less than 1e-6 here.

    Args:
        cv: standard deviation of a repeat, as a share of the mean.
        n: repeats of one group.
        other: repeats of the other group; as many if None.

    Returns:
        The difference of the means, as a share of the mean; None where a group has fewer than two.
    """
    m = n if other is None else other
    if min(n, m) < 2:
        return None
    return _shift(n + m - 2) * cv * math.sqrt(1 / n + 1 / m)


@cache
def _shift(degrees: int) -> float:
    """Return the noncentrality at which the upper quantile of t is exceeded with the power."""
    return float(_special().nctdtrinc(degrees, 1 - POWER, t_quantile(degrees)))


def pooled_cv(one: Repeats, other: Repeats) -> float | None:
    """Return the CV of two groups of repeats together, each about its own mean."""
    if one.cv is None or other.cv is None:
        return None
    squares = (one.n - 1) * one.cv**2 + (other.n - 1) * other.cv**2
    return math.sqrt(squares / (one.n + other.n - 2))


def _special() -> Any:
    # A quarter of a second, which commands without an interval do without.
    from scipy import special

    return special
