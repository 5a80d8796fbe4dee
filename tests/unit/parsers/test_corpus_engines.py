"""The right values of recorded scrapes of engines and results of load clients, by hand."""

import pytest

from servemap.model.errors import ParseError
from tests.corpus import extract, index, read_sample, sample


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


@sample("bench_results/001_gpustack_glm45air_h100_1.txt", "bench-result")
def test_figures_of_a_printed_result(data, skipped):
    (run,) = data["runs"]
    assert (run["successful_requests"], run["benchmark_duration_s"]) == (1000, 52.39)
    assert (run["mean_ttft_s"], run["p99_ttft_s"]) == (16.38388, 19.97518)
    assert (run["mean_tpot_s"], run["mean_itl_s"]) == (0.13447, 0.07475)
    assert run["output_token_throughput_tokens_per_s"] == 3815.71
    assert (run["not_measured"], skipped) == ([], [])


@sample("bench_results/013_sglang_jsonl_llama405b_online.jsonl", "bench-result")
def test_a_run_a_line(data, skipped):
    rates = [(run["request_rate"], run["completed"]) for run in data["runs"]]
    assert rates == [(1, 300), (2, 600), (4, 1200), (8, 2400), (4, 1200), (8, 2400)]
    assert round(data["runs"][3]["median_ttft_s"], 5) == 123.71863
    # Two experiments appended to one file.
    assert [(one["request_rate"], one["at"], one["differ_in"]) for one in data["repeated"]] == [
        (4, [2, 4], ["dataset_name"]),
        (8, [3, 5], ["dataset_name"]),
    ]
    assert skipped == []


@sample("bench_results/030_vllm_all_failed_dns.txt", "bench-result")
def test_no_latency_where_every_request_failed(data, skipped):
    (run,) = data["runs"]
    assert (run["successful_requests"], run["failed_requests"]) == (0, 1000)
    assert {run[name] for name in run if "ttft" in name or "tpot" in name} == {None}
    assert [piece.line for piece in skipped] == [1]


@sample("bench_results/034_vllm_old_json_infinity_nan_colon_key.json", "bench-result")
def test_literals_that_are_no_json(data, skipped):
    (run,) = data["runs"]
    assert (run["request_rate"], run["completed"], run["mean_ttft_s"]) == ("inf", 0, None)
    assert (run["request_goodput"], run["mean_tpot_s"], skipped) == (None, None, [])


def test_a_client_that_got_all_text_at_once_has_no_gaps_between_tokens():
    raw = read_sample("bench_results/004_sglang_tpot_minus_zero_itl_zero.txt")
    (run,) = extract("bench-result", raw).data["runs"]
    assert run["not_measured"] == ["tpot", "itl"]
    assert (run["mean_tpot_s"], run["median_itl_s"]) == (None, None)
    assert (run["mean_ttft_s"], run["total_generated_tokens_retokenized"]) == (2.07409, 103837)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("001_vllm0251_laguna_ok_then_sigterm", 65),
        ("006_vllm0251_gemma_ok", 31),
        ("011_vllm085_model_404", 10),
    ],
)
def test_all_throughput_lines_of_vllm(name, lines):
    samples = extract("engine-log", read_sample(f"server_logs/{name}.log")).data["samples"]
    assert len(samples) == lines
    assert all("avg_generation_throughput_tokens_per_s" in one["figures"] for one in samples)


def test_all_decode_lines_of_sglang():
    raw = read_sample("server_logs/007_sglang_int4_ok.log")
    samples = extract("engine-log", raw).data["samples"]
    decode = [one for one in samples if one["phase"] == "decode"]
    assert len(decode) == 56
    assert all("gen_throughput_tokens_per_s" in one["figures"] for one in decode)


@sample("server_logs/026_sglang_prefill_decode_lines.log", "engine-log")
def test_prefill_and_decode_lines(data, skipped):
    prefill, first, second = data["samples"]
    assert (prefill["time"], prefill["rank"], prefill["phase"]) == (
        "2025-07-18 15:32:52", "TP0", "prefill",
    )  # fmt: skip
    assert (prefill["figures"]["new_token"], prefill["figures"]["cached_token"]) == (2192, 35)
    rates = [one["figures"]["gen_throughput_tokens_per_s"] for one in (first, second)]
    assert (rates, skipped) == ([3.13, 75.25], [])


@sample("server_logs/027_sglang_old_decode_variants.log", "engine-log")
def test_lines_without_a_time(data, skipped):
    for one in data["samples"]:
        assert (one["time"], one["rank"]) == (None, None)
        assert one["figures"]["running_req"] == 233 and one["figures"]["queue_req"] == 317
        assert one["figures"]["token_usage"] == 0.82
        assert one["figures"]["gen_throughput_tokens_per_s"] == 4594.01


def as_the_index_says(data, file):
    """Compare a run with all right values of its sample, `Mean TTFT (ms)=1.5; ...` in the index."""
    (run,) = data["runs"]
    for right in index()[file]["right_values"].split("; "):
        name, _, figure = right.partition("=")
        words, _, unit = name.partition(" (")
        key = words.lower().replace(" ", "_")
        suffix, factor = {"ms)": ("_s", 1000), "s)": ("_s", 1), "tok/s)": ("_tokens_per_s", 1)}.get(
            unit, ("", 1)
        )
        assert run[key + suffix] == pytest.approx(float(figure) / factor, rel=1e-9), name


@sample("bench_results/002_gpustack_qwen30b_910b.txt", "bench-result")
def test_an_indented_result(data, skipped):
    as_the_index_says(data, "bench_results/002_gpustack_qwen30b_910b.txt")


@sample("bench_results/006_vllm_recipe_dsv32.txt", "bench-result")
def test_a_result_in_a_recipe(data, skipped):
    as_the_index_says(data, "bench_results/006_vllm_recipe_dsv32.txt")


@sample("bench_results/007_sglang_cookbook_r1.txt", "bench-result")
def test_a_result_with_e2e_latencies(data, skipped):
    as_the_index_says(data, "bench_results/007_sglang_cookbook_r1.txt")


@sample("bench_results/009_srt_slurm_doc.txt", "bench-result")
def test_a_result_in_a_document(data, skipped):
    as_the_index_says(data, "bench_results/009_srt_slurm_doc.txt")


@sample("own/vllm_metrics_busy.txt", "engine-metrics")
def test_a_scrape_under_load(data, skipped):
    assert (data["engines"], skipped) == (["vllm"], [])
    assert value(data["gauges"], "vllm:num_requests_running") == 2
    assert value(data["gauges"], "vllm:num_requests_waiting") == 4


@sample("own/llamacpp_metrics.txt", "engine-metrics")
def test_a_scrape_of_llamacpp(data, skipped):
    assert skipped == []
    assert value(data["gauges"], "llamacpp:requests_processing") == 0
    assert value(data["gauges"], "llamacpp:requests_deferred") == 0


@sample("own/sglang_metrics.txt", "engine-metrics")
def test_a_scrape_of_sglang(data, skipped):
    assert (data["engines"], skipped) == (["sglang"], [])
    assert value(data["gauges"], "sglang:num_running_reqs") == 0


@sample("bench_results/012_sglang_jsonl_deepseek_inf.jsonl", "bench-result")
def test_a_run_at_an_infinite_rate(data, skipped):
    (run,) = data["runs"]
    assert run["request_rate"] == "inf"
    assert run["output_throughput"] == pytest.approx(12412.394, abs=1e-3)
    assert run["median_ttft_s"] == pytest.approx(10.0141, abs=5e-5)


@sample("bench_results/022_llmperf_bedrock_70b.json", "bench-result")
def test_a_summary_of_llmperf(data, skipped):
    as_the_index_says(data, "bench_results/022_llmperf_bedrock_70b.json")


@sample("bench_results/033_srt_sa_bench_json_doc.json", "bench-result")
def test_a_result_without_a_client_name(data, skipped):
    assert data["runs"][0]["mean_ttft_s"] == pytest.approx(0.2453)
