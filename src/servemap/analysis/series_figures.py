"""Figures of one series in one part of a segment: spread, count, coverage, integral, gaps."""

import math
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import yaml

from servemap.analysis.parts import WHOLE, Parts
from servemap.analysis.stats import mean_over
from servemap.parsers.series import Floats, Ints
from servemap.telemetry.align import (
    LEAST_INTERVALS,
    AlignedSeries,
    Mask,
    Segment,
    covered_s,
    gaps_of,
)


class Integral(NamedTuple):
    """An integral over time, in its unit, and the seconds that it is over."""

    value: float
    unit: str
    seconds: float


class SeriesFigures(NamedTuple):
    """What the tables show of a series; None where there is nothing to say.

    Args:
        n: samples in the part.
        mean: of rates over the time that each was computed over; of gauges over the samples.
        expected: its length over the collector's interval; None where that is not known.
        coverage: share of the part's time that samples speak for (`align.covered_s`); None below
            three expected samples.
        integral: see `integral`.
        gaps: stretches of the whole segment longer than three intervals without a sample.
        largest_gap_s: the longest stretch without one, from edge to edge of the whole segment.
    """

    n: int
    expected: float | None = None
    coverage: float | None = None
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None
    min: float | None = None
    integral: Integral | None = None
    gaps: int | None = None
    largest_gap_s: float | None = None


def series_figures(
    one: AlignedSeries, parts: Parts, part: str, interval_s: float | None
) -> SeriesFigures:
    """Return the figures of a series inside a part of its segment.

    Args:
        one: the series in and around the segment.
        parts: the segment.
        part: one of its parts.
        interval_s: at which the collector was to sample; None where nobody knows.
    """
    t_ns, values = one.t_ns[one.inside], one.value[one.inside]
    begins = t_ns if one.from_ns is None else one.from_ns[one.inside]
    own = parts.mask(part, begins, t_ns)
    expected = parts.seconds(part) / interval_s if interval_s else None
    n = int(own.sum())
    found = SeriesFigures(n, expected)
    if interval_s and expected is not None and expected >= LEAST_INTERVALS:
        since = None if one.from_ns is None else begins[own]
        seen_s = covered_s(t_ns[own], since, parts.stretches(part), interval_s)
        found = found._replace(coverage=seen_s / parts.seconds(part))
    if part == WHOLE and interval_s:
        whole = Segment(one.segment, parts.start_ns, parts.end_ns)
        largest_s, gaps = gaps_of(t_ns, whole, interval_s)
        found = found._replace(largest_gap_s=largest_s, gaps=len(gaps))
    if not n:
        return found
    ordered = np.sort(values[own])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = ordered.mean()
        if one.from_ns is not None:
            mean = mean_over(values[own], (t_ns - begins)[own].astype(np.float64))
        return found._replace(
            mean=_finite(mean),
            p50=_point(ordered, 0.5),
            p95=_point(ordered, 0.95),
            max=float(ordered[-1]),
            min=float(ordered[0]),
            integral=integral(one, parts, part, interval_s),
        )


def _point(ordered: Floats, share: float) -> float | None:
    """Return a percentile by linear interpolation, as `stats.distribution` does."""
    place = share * (ordered.size - 1)
    lower = int(place)
    low, high = ordered[lower], ordered[min(lower + 1, ordered.size - 1)]
    return _finite(low + (high - low) * (place - lower))


def _finite(figure: float) -> float | None:
    """Return a figure; None where values near the largest float have none."""
    return float(figure) if math.isfinite(figure) else None


def integral(
    one: AlignedSeries, parts: Parts, part: str, interval_s: float | None
) -> Integral | None:
    """Return the integral of a series over a part; None where its unit has none.

    A rate counts over its own interval, so the sum is what the counter grew by. A gauge is
    integrated by the trapezoidal rule from sample to sample; what lies between two that are more
    than three intervals apart is left out, and so are the edges of the segment: `seconds` says
    what is in. The two parts of a segment add up to the whole.
    """
    known = _integrals().get(one.unit)
    if known is None:
        return None
    t_ns, values = one.t_ns[one.inside], one.value[one.inside]
    if one.from_ns is not None:
        begins, ends = one.from_ns[one.inside], t_ns
    else:
        begins, ends, values = t_ns[:-1], t_ns[1:], (values[:-1] + values[1:]) / 2
    own = parts.mask(part, begins, ends)
    if one.from_ns is None and interval_s:
        own = own & _near(begins, ends, interval_s)
    seconds = (ends - begins)[own] / 1e9
    if not seconds.size:
        return None
    total = _finite((values[own] * seconds).sum() * known.get("factor", 1))
    return None if total is None else Integral(total, known["unit"], float(seconds.sum()))


def _near(begins: Ints, ends: Ints, interval_s: float) -> Mask:
    near: Mask = ends - begins <= LEAST_INTERVALS * interval_s * 1e9
    return near


@cache
def _integrals() -> dict[str, dict[str, Any]]:
    file = resources.files("servemap.analysis").joinpath("integrals.yaml")
    table: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["integrals"]
    return table
