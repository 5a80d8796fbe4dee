"""Distributions of one measurement's values, and changes between two figures."""

import numpy as np
from numpy.typing import ArrayLike

from servemap.parsers.series import Floats

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
# P99 of fewer samples than this is the maximum or close to it, and is shown with a flag.
P99_SAMPLES = 100

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


def mean_over(values: Floats, lengths: Floats) -> float:
    """Return the mean over time of values that each hold for a length of time, in any unit.

    Lengths below 0, of a clock that was set back, count as none; where all are so, each value
    counts the same.
    """
    weights = np.maximum(lengths, 0.0)
    if not weights.any() or (weights == weights[0]).all():
        return float(values.mean())
    return float(np.average(values, weights=weights))


def change_percent(before: float | None, after: float | None) -> float | None:
    """Return (after - before) / before in percent; None where it is not defined."""
    if before is None or after is None or before == 0:
        return None
    return (after - before) / before * 100.0
