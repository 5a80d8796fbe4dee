from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.stats import change_percent, distribution

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
