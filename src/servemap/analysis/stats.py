"""Distributions and small-sample intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
# P99 of fewer samples than this is the maximum or close to it, and is shown with a flag.
P99_SAMPLES = 100

# Two-sided 95 % (0.975) quantiles of Student's t for 1..30 degrees of freedom, and some beyond:
# NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_T_975_BEYOND = ((40, 2.021), (60, 2.000), (100, 1.984))

Distribution = dict[str, float | int]


def distribution(values: ArrayLike, own: bool = False) -> Distribution | None:
    """Return n, mean, p1..p99 (linear interpolation) and max; None where there is no value.

    Args:
        values: one-dimensional.
        own: whether an array may be sorted where it is, as nobody else uses it.
    """
    array = np.array(values, dtype=np.float64, copy=None if own else True)
    if array.size == 0:
        return None
    result: Distribution = {"n": int(array.size), "mean": float(array.mean())}
    # Of sorted values percentiles take a quarter of the time.
    array.sort()
    points = np.percentile(array, PERCENTILES, method="linear", overwrite_input=True)
    result.update({f"p{p}": float(v) for p, v in zip(PERCENTILES, points, strict=True)})
    result["max"] = float(array[-1])
    return result


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
    half = t_975(n - 1) * deviation / math.sqrt(n)
    cv = deviation / abs(mean) if mean else None
    return Repeats(n, mean, cv, mean - half, mean + half)


def t_975(degrees: int) -> float:
    """Return the 0.975 quantile of t, rounded towards the wider interval between table rows."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    return next((t for most, t in reversed(_T_975_BEYOND) if degrees >= most), _T_975[-1])


def change_percent(before: float | None, after: float | None) -> float | None:
    """Return (after - before) / before in percent; None where it is not defined."""
    if before is None or after is None or before == 0:
        return None
    return (after - before) / before * 100.0
