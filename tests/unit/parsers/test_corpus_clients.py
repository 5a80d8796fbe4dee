"""The right values of recorded reports and tables of load clients, by hand."""

import pytest

from tests.corpus import index, sample


@sample("bench_results/017_guidellm_v2_report.json", "guidellm")
def test_two_benchmarks_of_a_report(data, skipped):
    first, second = data["benchmarks"]
    assert (data["version"], skipped) == ("0.8.0.dev18", [])
    assert (first["strategy"], first["rate"], first["requests"]["successful"]) == ("constant", 2, 2)
    assert first["duration_s"] == pytest.approx(first["end_s"] - first["start_s"])
    assert first["requests"] == {"successful": 2, "errored": 0, "incomplete": 0, "total": 2}
    latency = first["figures"]["request_latency_s"]
    assert (latency["count"], latency["mean"]) == (2, 0.01978909969329834)
    # Two requests at two a second take 20 ms each, so nearly nothing ran at the same time.
    assert first["figures"]["request_concurrency"]["mean"] == 0.007884656213828013
    assert first["figures"]["prompt_token_count"]["percentiles"]["p75"] == 92
    assert second["requests"]["total"] > 0


@sample("own/guidellm_llamacpp.json", "guidellm")
def test_latencies_of_a_report_are_seconds_and_add_up(data, skipped):
    (run,) = data["benchmarks"]
    assert (run["strategy"], run["max_concurrency"], run["rate"]) == ("concurrent", 4, None)
    assert run["requests"] == {"successful": 20, "errored": 0, "incomplete": 0, "total": 20}
    figures = run["figures"]
    assert figures["time_to_first_token_s"]["mean"] == 0.0708248257637024
    assert figures["time_to_first_token_s"]["percentiles"]["p99"] == 0.173044681549072
    # 32 tokens: the first one, and 31 gaps.
    gaps = 31 * figures["inter_token_latency_s"]["mean"]
    whole = figures["time_to_first_token_s"]["mean"] + gaps
    assert figures["request_latency_s"]["mean"] == pytest.approx(whole, rel=0.01)
    assert skipped == []


@sample("bench_results/018_inference_perf_stage0.json", "inference-perf")
def test_a_stage_of_inference_perf(data, skipped):
    found = {"successes count": data["successes"]["count"]}
    found["failures count"] = data["failures"]["count"]
    for right in index()["bench_results/018_inference_perf_stage0.json"]["right_values"].split(
        "; "
    ):
        name, _, figure = right.partition("=")
        if name.endswith(".mean"):
            found[name] = data["successes"][f"{name.removesuffix('.mean')}_s"]["mean"]
        assert found.pop(name) == float(figure), name
    assert (found, skipped) == ({}, [])
    assert (data["load"]["requested_rate"], data["load"]["schedule_delay_s"]["p99_9"]) == (
        1, 0.0012685910658910878,
    )  # fmt: skip
    assert data["successes"]["output_tokens_per_sec"] == 62.15363932698074
    assert data["failures"]["request_latency_s"] is None


@sample("bench_results/020_inference_perf_summary_prom.json", "inference-perf")
def test_a_summary_of_the_servers_own_metrics(data, skipped):
    assert (data["load"], data["failures"], skipped) == (None, None, [])
    assert (data["successes"]["count"], data["successes"]["rate"]) == (98004, 140.406877)
    assert data["successes"]["time_to_first_token_s"]["p99"] == 4.707998
    assert data["successes"]["queue_len"] == {"mean": 100}


@sample("bench_results/025_aiperf_console.txt", "aiperf")
def test_a_table_whose_numbers_are_grouped_and_whose_names_are_wrapped(data, skipped):
    (table,) = data["tables"]
    metrics = table["metrics"]
    assert (table["title"], len(metrics), skipped) == ("NVIDIA AIPerf | LLM Metrics", 10, [])
    assert metrics["time_to_first_token_s"]["p99"] == 0.06882
    assert metrics["output_token_throughput_per_user_tokens_per_s"]["max"] == 113.6
    whole = metrics["output_token_throughput_tokens_per_s"]
    assert (whole["avg"], whole["min"]) == (10944.03, None)
    assert metrics["request_count_requests"]["avg"] == 711
    assert metrics["request_throughput_requests_per_s"]["avg"] == 255.54


@sample("bench_results/027_genai_perf_console.txt", "aiperf")
def test_a_table_of_genai_perf(data, skipped):
    (table,) = data["tables"]
    assert (table["title"], skipped) == ("NVIDIA GenAI-Perf | LLM Metrics", [])
    assert table["metrics"]["inter_token_latency_s"] == {
        "avg": 0.00185, "min": 0.00155, "max": 0.00204, "p99": 0.00202, "p90": 0.00197,
        "p75": 0.00192,
    }  # fmt: skip
    assert table["metrics"]["output_token_throughput_per_s"]["avg"] == 520.87
    assert table["metrics"]["request_throughput_per_s"]["p75"] is None


@sample("bench_results/028_genai_perf_dynamo_console.txt", "aiperf")
def test_latencies_above_a_second(data, skipped):
    (table,) = data["tables"]
    assert table["metrics"]["request_latency_s"]["avg"] == 1.79953
    assert table["metrics"]["request_count_count"]["avg"] == 10
    assert skipped == []


@sample("own/aiperf_llamacpp_profile_export_aiperf.json", "aiperf")
def test_the_export_of_aiperf(data, skipped):
    (table,) = data["tables"]
    metrics = table["metrics"]
    assert (table["title"], data["was_cancelled"], skipped) == (None, False, [])
    assert metrics["request_latency_s"]["avg"] == 0.23759779465
    assert metrics["request_throughput_requests_per_s"] == {"avg": 16.063650260818623}
    assert metrics["benchmark_duration_s"]["avg"] == 1.2403143680000002
    assert metrics["output_token_throughput_per_user_tokens_per_s"]["p1"] == 98.23816088397402
    # Twenty answers have whole numbers of bytes only where a KB has 1024.
    received = metrics["http_req_data_received_bytes"]
    assert (received["count"], received["sum"], received["min"]) == (20, 157921, 7086)
