import pytest

from servemap.analysis.telemetry import engine_cache_hits
from servemap.telemetry.align import Segment
from tests.plain_align import AlignedRow, as_series

S = 10**9
SEGMENTS = [Segment("main", 0, 10 * S)]


def row(metric, value, inside=True, begin=0.0, end=1.0):
    times = (int(end * S), value, "main", inside, int(begin * S))
    return AlignedRow("head", "engine_metrics", "server", metric, "per_s", *times)


def share(*rows):
    found = engine_cache_hits(as_series(rows), SEGMENTS)
    return None if found is None else found.share


HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


def test_hit_rate_counts_only_what_happened_inside():
    rows = [row(HITS, 900, False), row(HITS, 1), row(QUERIES, 1000, False), row(QUERIES, 10)]
    assert share(*rows) == pytest.approx(0.1)


def test_a_long_interval_counts_for_what_it_holds():
    # 1 of 10 in one second, then 9 of 10 in three, in which a scrape failed.
    rows = [row(HITS, 1), row(QUERIES, 10), row(HITS, 3, begin=1, end=4)]
    rows.append(row(QUERIES, 10 / 3, begin=1, end=4))
    found = engine_cache_hits(as_series(rows), SEGMENTS)
    assert found.share == pytest.approx(0.5)
    assert (found.covered_s, found.window_s) == (4, 10)


def test_llamacpps_prompt_counter_leaves_cached_tokens_out():
    rows = [row("llamacpp:prompt_tokens_cached_total", 1), row("llamacpp:prompt_tokens_total", 3)]
    assert share(*rows) == pytest.approx(0.25)


def test_no_counter_or_no_prompt_is_unknown():
    assert share() is None
    assert share(row(HITS, 0), row(QUERIES, 0)) is None
    assert share(row(QUERIES, 5)) is None
