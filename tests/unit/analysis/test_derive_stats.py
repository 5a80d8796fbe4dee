import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.stats import change_percent, distribution, repeats, t_975

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50)


def test_percentiles_interpolate_linearly():
    figures = distribution([1.0, 2.0, 3.0, 4.0])
    assert figures["p50"] == 2.5
    assert figures["p10"] == pytest.approx(1.3)
    assert figures["p95"] == pytest.approx(3.85)
    assert (figures["n"], figures["mean"], figures["max"]) == (4, 2.5, 4.0)


def test_no_value_has_no_distribution():
    assert distribution([]) is None


@given(NUMBERS)
def test_percentiles_are_ordered_and_in_range(values):
    figures = distribution(values)
    points = [figures[f"p{p}"] for p in (1, 5, 10, 25, 50, 75, 90, 95, 99)]
    slack = 1e-9 * max(map(abs, values), default=1)
    assert all(a <= b + slack for a, b in pairwise(points))
    assert min(values) - slack <= points[0]
    assert points[-1] <= figures["max"] + slack
    assert figures["max"] == max(values)


def test_three_repeats_by_hand():
    row = repeats([10.0, 12.0, 14.0])
    assert (row.n, row.mean) == (3, 12.0)
    assert row.cv == pytest.approx(2.0 / 12.0)
    half = 4.303 * 2.0 / 3**0.5
    assert (row.ci95_low, row.ci95_high) == pytest.approx((12 - half, 12 + half))


def test_one_repeat_has_no_spread():
    assert repeats([5.0]) == (1, 5.0, None, None, None)
    assert repeats([]) == (0, None, None, None, None)


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=40))
def test_repeats_agree_with_the_standard_library(values):
    row = repeats(values)
    assert row.mean == pytest.approx(statistics.fmean(values))
    assert row.cv == pytest.approx(statistics.stdev(values) / statistics.fmean(values), abs=1e-9)
    assert row.ci95_low <= row.mean <= row.ci95_high


def test_t_quantiles_fall_and_stay_above_the_normal_one():
    values = [t_975(n) for n in range(1, 300)]
    assert all(a >= b for a, b in pairwise(values))
    assert values[0] == 12.706
    assert t_975(35) == 2.042
    assert t_975(60) == 2.000
    assert values[-1] > 1.96


@pytest.mark.parametrize(
    ("before", "after", "percent"), [(455.68, 345.95, -24.08), (65.88, 109.73, 66.56)]
)
def test_the_seeds_changes(before, after, percent):
    """The plan prints +66.55 % for the second, from unrounded inputs; these give +66.5604 %."""
    assert round(change_percent(before, after), 2) == percent


def test_the_printed_change_lies_within_what_was_rounded():
    assert change_percent(65.885, 109.725) < 66.55 < change_percent(65.875, 109.735)


def test_no_change_from_nothing():
    assert change_percent(0.0, 1.0) is None
    assert change_percent(None, 1.0) is None
    assert change_percent(1.0, None) is None


@given(st.floats(1e-3, 1e6), st.floats(0, 1e6))
def test_change_inverts(before, after):
    assert before * (1 + change_percent(before, after) / 100) == pytest.approx(after, abs=1e-6)


def test_numpy_agrees():
    values = np.linspace(0, 1, 37) ** 2
    assert distribution(values)["p90"] == pytest.approx(np.quantile(values, 0.9))
