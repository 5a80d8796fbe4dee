"""Figures of a series in the parts of a segment: by hand, and what must hold of any series."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servemap.analysis.parts import OVERLAP, STEADY, WHOLE, Parts, parts_of
from servemap.analysis.series_figures import integral, series_figures
from servemap.analysis.stats import distribution
from servemap.parsers.counters import delta
from servemap.telemetry.align import AlignedSeries

S = 10**9
PLAIN = Parts(0, 10 * S, [])
MIXED = Parts(0, 10 * S, [(2 * S, 4 * S), (7 * S, 8 * S)])


def series(times, values, unit="watts", begins=None, segment=(0, 10 * S)):
    t_ns = np.array(times, np.int64)
    from_ns = None if begins is None else np.array(begins, np.int64)
    start = t_ns if from_ns is None else from_ns
    inside = (start >= segment[0]) & (t_ns <= segment[1])
    names = ("n", "c", "e", "m", unit, "main")
    return AlignedSeries(*names, t_ns, from_ns, np.array(values, np.float64), inside)


def seconds(*times):
    return [round(t * S) for t in times]


def test_figures_by_hand():
    found = series_figures(series(seconds(-1, 1, 2, 3, 4), [9, 1, 2, 3, 4]), PLAIN, WHOLE, 1.0)
    assert (found.n, found.expected, found.coverage) == (4, 10.0, 0.45)
    assert (found.mean, found.p50, found.p95) == (2.5, 2.5, pytest.approx(3.85))
    assert (found.max, found.min) == (4, 1)
    assert (found.gaps, found.largest_gap_s) == (1, 6.0)


def test_coverage_is_of_time_in_each_part():
    times = seconds(*(2 + n / 4 for n in range(8)))
    one = series(times, range(8))
    parts = Parts(0, 10 * S, [(0, 4 * S)])
    whole, beside, rest = (series_figures(one, parts, p, 1.0) for p in (WHOLE, OVERLAP, STEADY))
    assert (whole.n, whole.coverage) == (8, 0.325)
    assert (beside.n, beside.coverage, rest.coverage) == (8, 0.6875, 0.0)
    late = series(seconds(1, 2, 9, 10), [1.0] * 4, "per_s", seconds(0, 1, 2, 9))
    assert series_figures(late, PLAIN, WHOLE, 1.0).coverage == 0.45


def test_nothing_inside_has_a_count_and_no_figure():
    found = series_figures(series([-S], [1.0]), PLAIN, WHOLE, 1.0)
    assert (found.n, found.coverage, found.mean, found.integral) == (0, 0.0, None, None)
    assert found.largest_gap_s == 10.0


def test_power_becomes_energy_and_a_gap_is_left_out():
    found = integral(series(seconds(0, 1, 2, 7, 8), [100, 200, 200, 300, 300]), PLAIN, WHOLE, 1.0)
    assert (found.value, found.unit, found.seconds) == (150 + 200 + 300, "joules", 3.0)


def test_a_rate_counts_over_its_own_interval_however_long():
    begins, ends = seconds(0, 1, 6), seconds(1, 6, 7)
    found = integral(series(ends, [10, 2, 30], "bytes_per_s", begins), PLAIN, WHOLE, 1.0)
    assert (found.value, found.unit, found.seconds) == (10 + 10 + 30, "bytes", 7.0)


def test_the_mean_of_a_rate_is_over_time_as_its_integral_is():
    begins, ends = seconds(*range(9), 9), seconds(*range(1, 10), 18)
    whole = Parts(0, 20 * S, [])
    one = series(ends, [0.0] * 9 + [10e9], "bytes_per_s", begins, segment=(0, 20 * S))
    found = series_figures(one, whole, WHOLE, 1.0)
    assert found.mean == pytest.approx(5e9)
    assert found.mean == pytest.approx(found.integral.value / found.integral.seconds)


@given(st.lists(st.tuples(st.integers(1, 9 * S), st.floats(0, 1e12)), min_size=1, max_size=20))
def test_mean_times_seconds_is_the_integral_of_a_rate(steps):
    ends = np.cumsum([length for length, _ in steps])
    begins = ends - [length for length, _ in steps]
    end = int(ends[-1])
    one = series(ends, [v for _, v in steps], "bytes_per_s", begins, segment=(0, end))
    found = series_figures(one, Parts(0, end, []), WHOLE, 1.0)
    assert found.mean * found.integral.seconds == pytest.approx(found.integral.value)
    slack = 1e-9 * found.max
    assert found.min - slack <= found.mean <= found.max + slack


def test_a_rate_whose_clock_was_set_back_has_a_plain_mean():
    one = series(seconds(3, 4), [1, 3], "per_s", seconds(3, 4))
    assert series_figures(one, PLAIN, WHOLE, 1.0).mean == 2.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("begins", [None, seconds(0, 1, 2)])
def test_figures_beyond_the_largest_float_are_missing(begins):
    one = series(seconds(1, 2, 3), [1.7e308, -1.7e308, 1.7e308], "watts", begins)
    found = series_figures(one, PLAIN, WHOLE, 1.0)
    assert (found.max, found.min) == (1.7e308, -1.7e308)
    figures = [found.mean, found.p95, *(found.integral or ())]
    assert not any(isinstance(one, float) and not np.isfinite(one) for one in figures)


def test_only_units_of_the_table_have_an_integral():
    for unit, expected in (("percent_of_core", ("core_seconds", 2.0)), ("celsius", None)):
        found = integral(series(seconds(1, 2, 3), [100] * 3, unit), PLAIN, WHOLE, 1.0)
        assert (found and (found.unit, found.value)) == expected


def test_what_touches_an_injection_is_of_the_overlap():
    begins, ends = seconds(0, 1, 2, 3, 4, 5), seconds(1, 2, 3, 4, 5, 7.5)
    one = series(ends, [1, 2, 3, 4, 5, 6], "per_s", begins)
    beside, rest = (series_figures(one, MIXED, part, 1.0) for part in (OVERLAP, STEADY))
    assert (beside.n, beside.min, beside.max, beside.expected) == (3, 3, 6, 3.0)
    assert (rest.n, rest.mean, rest.expected) == (3, 8 / 3, 7.0)
    assert (rest.gaps, rest.largest_gap_s) == (None, None)


def test_parts_of_a_record():
    found = parts_of({"start_ns": 0, "end_ns": 9, "overlaps": [[1, 2], "x", [3], [4, None]]})
    assert found == Parts(0, 9, [(1, 2)])
    assert found.names == (WHOLE, OVERLAP, STEADY)
    assert parts_of({"start_ns": 0, "end_ns": 9}).names == (WHOLE,)
    assert parts_of({"start_ns": 0}) is None


TIMES = st.lists(st.integers(0, 10 * S), unique=True, max_size=30).map(sorted)
SPANS = st.lists(st.integers(0, 10 * S), unique=True, max_size=8).map(sorted)


def cut(edges):
    return Parts(0, 10 * S, list(zip(edges[::2], edges[1::2], strict=False)))


@given(TIMES, SPANS, st.booleans())
def test_every_sample_is_of_exactly_one_part(times, edges, rates):
    parts = cut(edges)
    assume(parts.overlaps)
    begins = [max(t - S, 0) for t in times] if rates else None
    one = series(times, range(len(times)), "per_s", begins)
    found = {part: series_figures(one, parts, part, 1.0) for part in parts.names}
    assert found[OVERLAP].n + found[STEADY].n == found[WHOLE].n == len(times)
    lengths = [parts.seconds(part) for part in (OVERLAP, STEADY)]
    assert sum(lengths) == pytest.approx(parts.seconds(WHOLE))
    masks = [parts.mask(part, one.t_ns, one.t_ns) for part in (OVERLAP, STEADY)]
    assert (masks[0] ^ masks[1]).all()


@given(TIMES, SPANS)
def test_parts_add_up_to_the_whole(times, edges):
    parts = cut(edges)
    assume(parts.overlaps)
    one = series(times, [t / S for t in times])
    found = [integral(one, parts, part, None) for part in parts.names]
    known = [(each.value, each.seconds) if each else (0, 0) for each in found]
    assert known[1][0] + known[2][0] == pytest.approx(known[0][0])
    assert known[1][1] + known[2][1] == pytest.approx(known[0][1])


@given(TIMES, st.floats(0.1, 1e6))
def test_the_integral_of_a_constant_is_value_times_time(times, value):
    assume(len(times) > 1)
    found = integral(series(times, [value] * len(times)), PLAIN, WHOLE, None)
    length = (times[-1] - times[0]) / S
    assert found.seconds == pytest.approx(length)
    assert found.value == pytest.approx(value * length)


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=10))
def test_the_integral_of_a_counters_rates_is_what_it_grew_by(counts):
    pairs = list(pairwise(counts))
    grown = [(n, moved[0]) for n, (a, b) in enumerate(pairs) if (moved := delta([a], [b]))]
    assume(grown)
    begins, ends = [n * S for n, _ in grown], [(n + 1) * S for n, _ in grown]
    one = series(ends, [moved for _, moved in grown], "per_s", begins)
    assert integral(one, PLAIN, WHOLE, 1.0).value == pytest.approx(
        sum(b - a for a, b in pairs if b >= a)
    )


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_percentiles_are_those_of_every_other_table(values):
    one = series(range(len(values)), values)
    found, known = series_figures(one, PLAIN, WHOLE, 1.0), distribution(values)
    assert (found.mean, found.p50, found.p95, found.max) == pytest.approx(
        tuple(known[name] for name in ("mean", "p50", "p95", "max")), rel=1e-9, abs=1e-6
    )
