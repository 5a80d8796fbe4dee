"""Intervals of repeats, and the smallest effect that they can show."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis import noise
from servemap.analysis.noise import (
    bootstrap_mean,
    pooled_cv,
    repeats,
    smallest_effect,
    t_quantile,
    within_run,
)

CVS = st.floats(1e-4, 1.0)
COUNTS = st.integers(2, 200)


def test_three_repeats_by_hand() -> None:
    row = repeats([10.0, 12.0, 14.0])
    assert (row.n, row.mean) == (3, 12.0)
    assert row.cv == pytest.approx(2.0 / 12.0)
    half = 4.302653 * 2.0 / 3**0.5
    assert (row.ci95_low, row.ci95_high) == pytest.approx((12 - half, 12 + half))


def test_one_repeat_has_no_spread() -> None:
    assert repeats([5.0]) == (1, 5.0, None, None, None)
    assert repeats([]) == (0, None, None, None, None)


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=40))
def test_repeats_agree_with_the_standard_library(values: list[float]) -> None:
    row = repeats(values)
    assert row.mean == pytest.approx(statistics.fmean(values))
    assert row.cv == pytest.approx(statistics.stdev(values) / statistics.fmean(values), abs=1e-9)
    assert row.ci95_low is not None and row.mean is not None and row.ci95_high is not None
    assert row.ci95_low <= row.mean <= row.ci95_high


@pytest.mark.parametrize(
    ("degrees", "published"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042), (100, 1.984)],
)
def test_t_quantiles_of_the_nist_handbook(degrees: int, published: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2."""
    assert t_quantile(degrees) == pytest.approx(published, abs=5e-4)


@pytest.mark.parametrize(
    ("effect", "published"),
    [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17), (1.2, 12)],
)
def test_the_group_sizes_of_published_tables(effect: float, published: int) -> None:
    """Cohen (1988), table 2.4.1, for a two-sided 5 % and a power of 80 %; G*Power for 0.2."""
    enough, too_few = smallest_effect(1.0, published), smallest_effect(1.0, published - 1)
    assert enough is not None and too_few is not None
    assert enough <= effect < too_few


def power(effect: float, cv: float, n: int, m: int) -> float:
    """Another implementation: scipy's distribution objects."""
    from scipy import stats

    shift = effect / (cv * math.sqrt(1 / n + 1 / m))
    return float(stats.nct.sf(stats.t.ppf(0.975, n + m - 2), n + m - 2, shift))


def test_the_example_of_r() -> None:
    """R's help: power.t.test(n = 20, delta = 1, sd = 1) has the power 0.8689528."""
    assert power(1.0, 1.0, 20, 20) == pytest.approx(0.8689528, abs=1e-7)


def test_three_repeats_at_3_percent_cannot_see_5_percent() -> None:
    assert smallest_effect(0.03, 3) == pytest.approx(0.092127, abs=1e-6)
    assert power(0.05, 0.03, 3, 3) < 0.5
    assert smallest_effect(0.03, 2) == pytest.approx(0.1696047, abs=1e-6)
    assert smallest_effect(0.03, 1) is None
    assert smallest_effect(0.03, 3, 1) is None


@given(CVS, COUNTS, COUNTS)
def test_the_smallest_effect_is_seen_with_a_power_of_80_percent(cv: float, n: int, m: int) -> None:
    effect = smallest_effect(cv, n, m)
    assert effect is not None
    assert power(effect, cv, n, m) == pytest.approx(0.8, abs=1e-5)
    assert smallest_effect(cv, m, n) == pytest.approx(effect)


@given(CVS, st.integers(2, 100), st.floats(1.01, 10))
def test_more_repeats_and_less_noise_show_smaller_effects(cv: float, n: int, more: float) -> None:
    here, quieter, longer, louder = (
        smallest_effect(cv, n),
        smallest_effect(cv / more, n),
        smallest_effect(cv, n + 1),
        smallest_effect(cv * more, n),
    )
    assert here is not None and quieter is not None and longer is not None and louder is not None
    assert quieter < here < louder
    assert longer < here


def test_the_pooled_cv_weighs_by_degrees_of_freedom() -> None:
    three, two = repeats([98.0, 100.0, 102.0]), repeats([99.0, 101.0])
    expected = math.sqrt((2 * 0.02**2 + 1 * (math.sqrt(2) / 100) ** 2) / 3)
    assert pooled_cv(three, two) == pytest.approx(expected)
    assert pooled_cv(three, repeats([1.0])) is None


def test_repeats_are_what_the_bootstrap_draws_and_it_needs_six() -> None:
    values = [10.0, 11.0, 9.0, 10.5, 9.5, 10.2]
    low, high = bootstrap_mean(values)
    assert low is not None and high is not None
    assert min(values) < low < statistics.fmean(values) < high < max(values)
    assert bootstrap_mean(values) == (low, high), "the draws are fixed"
    assert bootstrap_mean(values[:5]) == (None, None)
    spread = repeats(values)
    assert spread.ci95_low is not None and spread.ci95_high is not None
    assert spread.ci95_low < low and high < spread.ci95_high, "of few repeats t is the wider one"


@pytest.mark.parametrize(
    ("n", "point", "bounded"),
    [
        (5, "p50", (False, False)),
        (6, "p50", (True, True)),
        (71, "p95", (True, False)),
        (72, "p95", (True, True)),
        (367, "p99", (True, False)),
        (368, "p99", (True, True)),
    ],
)
def test_a_percentile_of_few_requests_has_no_end(
    n: int, point: str, bounded: tuple[bool, bool]
) -> None:
    found = within_run(np.arange(n, dtype=float))
    assert found is not None
    assert tuple(end is not None for end in found[point]) == bounded


def test_no_request_has_no_interval() -> None:
    assert within_run([]) is None


def test_the_drawn_ranks_are_the_bootstrap() -> None:
    """The same interval as drawing whole resamples, to within the draws' own noise."""
    rng = np.random.default_rng(7)
    values = rng.exponential(1.0, 400)
    drawn = np.percentile(rng.choice(values, size=(8_000, 400)), 95, axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    found = within_run(values)
    assert found is not None
    assert found["p95"] == pytest.approx([low, high], rel=0.05)


def test_the_within_run_interval_covers_what_it_should() -> None:
    rng = np.random.default_rng(3)
    truth = -math.log(0.05)
    held = 0
    for _ in range(400):
        found = within_run(rng.exponential(1.0, 200))
        assert found is not None
        low, high = found["p95"]
        assert low is not None and high is not None
        held += low <= truth <= high
    assert 0.91 <= held / 400 <= 0.98


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=600))
def test_ends_are_values_of_the_run_and_in_order(values: list[float]) -> None:
    found = within_run(values)
    assert found is not None
    for low, high in found.values():
        assert low is None or low in values
        assert high is None or high in values
        if low is not None and high is not None:
            assert low <= high


def test_no_command_waits_for_scipy() -> None:
    """It is imported by the first interval, not by the module."""
    assert not [name for name in vars(noise) if name in ("scipy", "special")]
