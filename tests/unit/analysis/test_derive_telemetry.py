import pytest

from servemap.analysis.telemetry import engine_cache_hit_rate
from servemap.telemetry.align import AlignedRow


def row(metric, value, inside=True):
    return AlignedRow("head", "engine_metrics", "server", metric, "per_s", 1, value, "main", inside)


HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


def test_hit_rate_counts_only_what_happened_inside():
    rows = [row(HITS, 900, False), row(HITS, 1), row(QUERIES, 1000, False), row(QUERIES, 10)]
    assert engine_cache_hit_rate(rows) == pytest.approx(0.1)


def test_llamacpps_prompt_counter_leaves_cached_tokens_out():
    rows = [row("llamacpp:prompt_tokens_cached_total", 1), row("llamacpp:prompt_tokens_total", 3)]
    assert engine_cache_hit_rate(rows) == pytest.approx(0.25)


def test_no_counter_or_no_prompt_is_unknown():
    assert engine_cache_hit_rate([]) is None
    assert engine_cache_hit_rate([row(HITS, 0), row(QUERIES, 0)]) is None
    assert engine_cache_hit_rate([row(QUERIES, 5)]) is None
