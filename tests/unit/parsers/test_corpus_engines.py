"""The right values of recorded scrapes of engines, worked out by hand."""

import pytest

from servemap.model.errors import ParseError
from tests.corpus import extract, read_sample, sample


def value(series, metric):
    (found,) = [one for one in series if one["metric"] == metric]
    return found["value"]


def histogram(data, metric):
    (found,) = [one for one in data["histograms"] if one["metric"] == metric]
    return found


@sample("server_metrics/001_vllm_live.prom", "engine-metrics")
def test_created_series_are_left_out(data, skipped):
    assert (data["engines"], skipped) == (["vllm"], [])
    assert value(data["gauges"], "vllm:num_requests_running") == 2
    kept = [one["metric"] for one in data["gauges"] + data["counters"] + data["untyped"]]
    assert not any(name.endswith("_created") for name in kept)


@sample("server_metrics/002_vllm_small.prom", "engine-metrics")
def test_a_scrape_of_five_series(data, skipped):
    assert value(data["gauges"], "vllm:num_requests_running") == 3
    assert (len(data["gauges"] + data["counters"]), data["histograms"], skipped) == (5, [], [])


@sample("server_metrics/004_vllm_fixture.prom", "engine-metrics")
def test_counts_by_reason_and_histograms(data, skipped):
    done = [one for one in data["counters"] if one["metric"] == "vllm:request_success_total"]
    assert [one["value"] for one in done] == [1840, 160]
    prompts = histogram(data, "vllm:request_prompt_tokens")
    assert (prompts["count"], prompts["sum"], prompts["mean"]) == (2000, 906000, 453)
    assert histogram(data, "vllm:request_generation_tokens")["mean"] == 144
    assert histogram(data, "vllm:e2e_request_latency_seconds")["sum"] == 6400
    assert skipped == []


@sample("server_metrics/007_sglang_docs_overflow_bucket.prom", "engine-metrics")
def test_a_median_above_the_largest_bound_is_not_made_up(data, skipped):
    assert (data["engines"], skipped) == (["sglang"], [])
    first = histogram(data, "sglang:time_to_first_token_seconds")
    assert round(first["mean"], 2) == 213.65
    assert first["quantiles"]["p10"] == {"above": 7.5, "at_most": 10}
    assert first["quantiles"]["p50"] == {"above": 30, "at_most": None}
    assert value(data["gauges"], "sglang:num_running_reqs") == 162
    assert value(data["gauges"], "sglang:num_queue_reqs") == 2826


def test_a_list_of_names_is_no_scrape():
    with pytest.raises(ParseError, match="no output of an engine's /metrics"):
        extract("engine-metrics", read_sample("server_metrics/006_vllm_families_v0260.txt"))
