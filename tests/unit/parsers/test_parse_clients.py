"""Result files of load clients of others: real ones, cut ones, and anything at all."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.client_requests import client_requests
from servemap.analysis.client_summary import check_summary
from servemap.analysis.store import write_requests
from servemap.measure.clients.start import ADAPTERS
from servemap.measure.clients.window import MONOTONIC, window
from servemap.model.errors import ParseError
from servemap.parsers.clients import aiperf, sglang_bench, vllm_bench
from servemap.parsers.clients.records import FLAG_AS_ASKED, FLAG_NO_TOKEN, ClientRun
from servemap.parsers.clients.registry import PARSERS, read_run
from servemap.telemetry.clock import HEAD_TIMES
from tests.fake_client import result
from tests.parts import need


def vllm(record: Any) -> ClientRun:
    return vllm_bench.parse({vllm_bench.RESULT: json.dumps(record).encode()})


def sglang_record(**changes: Any) -> dict[str, Any]:
    record = {
        "backend": "sglang-oai",
        "request_rate": float("inf"),
        "duration": 2.0,
        "completed": 2,
        "input_lens": [10, 10],
        "output_lens": [3, 3],
        "ttfts": [0.5, 0.25],
        "itls": [[0.1, 0.2], [0.1, 0.1]],
        "errors": ["", ""],
    }
    return {**record, **changes}


def sglang(*records: Any) -> ClientRun:
    text = "".join(json.dumps(record) + "\n" for record in records)
    return sglang_bench.parse({sglang_bench.RESULT: text.encode()})


def aiperf_record(phase: str = "profiling", **changes: Any) -> dict[str, Any]:
    metrics = {
        "time_to_first_token": {"value": 20.0, "unit": "ms"},
        "request_latency": {"value": 60.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [15.0, 25.0], "unit": "ms"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
        "usage_completion_tokens": {"value": 3, "unit": "tokens"},
        "usage_prompt_tokens": {"value": 64, "unit": "tokens"},
        "usage_prompt_cache_read_tokens": {"value": 1, "unit": "tokens"},
    }
    metadata = {"x_request_id": "a", "request_start_ns": 1_000, "benchmark_phase": phase}
    return {"metadata": metadata, "metrics": metrics, **changes}


SUMMARY = {"start_time": "2026-11-29T21:09:19.228938", "end_time": "2026-11-29T21:09:22.818892"}


def run_aiperf(*records: Any, summary: Any = SUMMARY, phases: Any = None) -> ClientRun:
    files = {aiperf.RECORDS: "".join(json.dumps(r) + "\n" for r in records).encode()}
    if summary is not None:
        files[aiperf.SUMMARY] = json.dumps(summary).encode()
    if phases is not None:
        files[aiperf.PHASES] = json.dumps({"phases": phases}).encode()
    return aiperf.parse(files)


def corpus(name: str) -> bytes:
    return Path(need("corpus"), "own", name).read_bytes()


def test_a_real_vllm_run() -> None:
    run = vllm_bench.parse({vllm_bench.RESULT: corpus("vllm_bench_serve.json")})
    assert len(run.calls) == 20
    assert all(call.counted and call.error is None for call in run.calls)
    first = run.calls[0]
    assert (first.input_tokens, first.output_tokens) == (64, 32)
    assert first.latency_s == pytest.approx((first.ttft_s or 0) + sum(first.gaps_s))
    assert first.start_s == pytest.approx(897.435269922)
    assert run.queue_s == pytest.approx(0.000210081)
    assert run.duration_s == pytest.approx(1.018540085)
    assert run.summary["median_ttft_ms"] == pytest.approx(25.581807)


def test_a_real_vllm_run_in_which_a_request_was_lost() -> None:
    run = vllm_bench.parse({vllm_bench.RESULT: corpus("vllm_bench_serve_llamacpp.json")})
    (lost,) = [call for call in run.calls if not call.counted]
    assert "ClientOSError" in (lost.error or "")
    assert (lost.ttft_s, lost.latency_s, lost.output_tokens) == (None, None, None)
    assert lost.start_s is not None


def test_real_sglang_runs() -> None:
    native = sglang_bench.parse({sglang_bench.RESULT: corpus("sglang_sglang.jsonl")})
    assert {call.input_tokens for call in native.calls} != {64}, "as the server counted them"
    assert all(call.flags == () for call in native.calls)
    asked = sglang_bench.parse({sglang_bench.RESULT: corpus("sglang_vllm.jsonl")})
    assert {call.output_tokens for call in asked.calls} == {32}
    assert all(call.flags == (FLAG_AS_ASKED,) for call in asked.calls)
    assert all(call.start_s is None and call.latency_s is None for call in asked.calls)
    assert "request_rate" not in asked.summary, "Infinity is no number"
    with pytest.raises(ParseError, match="no single requests"):
        sglang_bench.parse({sglang_bench.RESULT: corpus("sglang_oai_llamacpp.jsonl")})


def test_a_real_aiperf_run() -> None:
    run = aiperf.parse({
        aiperf.RECORDS: corpus("aiperf_llamacpp_profile_export.jsonl"),
        aiperf.SUMMARY: corpus("aiperf_llamacpp_profile_export_aiperf.json"),
        aiperf.PHASES: corpus("aiperf_llamacpp_phase_manifest.json"),
    })  # fmt: skip
    assert len(run.calls) == 20, "the two of the warm-up are left out"
    assert run.window_ns == (1795952800580808902, 1795952801825855929)
    assert run.duration_s == pytest.approx(1.245047027)
    assert {call.output_tokens for call in run.calls} == {32}, "the server's count"
    assert {call.own_tokens for call in run.calls} != {32}, "the client's own"
    assert run.summary["time_to_first_token.p50"] == pytest.approx(54.865664)


def test_a_summary_without_requests_is_refused() -> None:
    data = Path(need("corpus"), "bench_results/015_inferencex_qwen35_c32.json").read_bytes()
    with pytest.raises(ParseError, match="no single requests"):
        vllm_bench.parse({vllm_bench.RESULT: data})


def test_a_real_run_in_which_all_failed() -> None:
    name = "bench_results/034_vllm_old_json_infinity_nan_colon_key.json"
    run = vllm_bench.parse({vllm_bench.RESULT: Path(need("corpus"), name).read_bytes()})
    assert not any(call.counted for call in run.calls)
    assert "mean_tpot_ms" not in run.summary, "NaN is no number"
    assert check_summary(run, "vllm-bench")[1]["not_compared"] == [
        "mean_ttft_ms", "median_ttft_ms", "std_ttft_ms", "p99_ttft_ms",
    ], "the zeros of a run without a success stand for nothing"  # fmt: skip


def test_a_real_cancelled_record_is_a_failure_with_its_reason() -> None:
    data = Path(need("corpus"), "bench_results", "032_aiperf_record_failed.json").read_bytes()
    (call,) = run_aiperf(json.loads(data)).calls
    assert not call.counted
    assert (call.error or "").startswith("499 RequestCancellationError")
    assert (call.ttft_s, call.latency_s) == (None, None)


def test_nan_and_infinity_are_missing() -> None:
    record = result(2, 4, 3, 0.0, 1.0)
    text = json.dumps({**record, "ttfts": [float("nan"), 0.2], "duration:": float("inf")})
    run = vllm_bench.parse({vllm_bench.RESULT: text.encode()})
    assert [call.counted for call in run.calls] == [False, True]


@pytest.mark.parametrize("value", [1e300, 1e10, -1.0])
def test_what_cannot_be_a_duration_is_damaged_and_no_refusal(value: float) -> None:
    record = result(2, 4, 3, 0.0, 1.0)
    for name in ("ttfts", "start_times", "latencies", "queue_times"):
        vllm({**record, name: [value, 0.2]})
    (bad, good) = vllm({**record, "ttfts": [value, 0.2]}).calls
    assert (bad.counted, bad.error) == (False, "what the client wrote of it is damaged")
    assert good.counted
    assert vllm({**record, "duration": value}).duration_s is None
    with pytest.raises(ParseError, match="no interval"):
        phase = {"phase_kind": "profiling", "start_ns": 5, "end_ns": 2**63 - 1}
        run_aiperf(aiperf_record(), phases=[phase])


def test_a_refusal_without_a_word_is_no_success() -> None:
    record = {**result(2, 4, 3, 0.0, 1.0, failed=1), "errors": ["", ""]}
    assert [call.error for call in vllm(record).calls] == [
        "the server refused it without a word",
        None,
    ]


def test_an_answer_without_a_token_failed_though_sglang_counts_it() -> None:
    run = sglang(sglang_record(ttfts=[0.0, 0.25], itls=[[], [0.1, 0.1]]))
    empty, good = run.calls
    assert (empty.counted, empty.error, empty.output_tokens) == (True, "no token came", None)
    assert FLAG_NO_TOKEN in empty.flags
    assert (good.counted, good.error) == (True, None)


def test_every_line_of_sglang_is_a_run_of_its_own() -> None:
    with pytest.raises(ParseError, match="holds 2 runs, not one"):
        sglang(sglang_record(), sglang_record())


def test_aiperf_without_a_manifest_takes_the_times_of_its_summary_as_utc() -> None:
    run = run_aiperf(aiperf_record())
    assert run.window_ns == (1795986559228938000, 1795986562818892000)
    assert run.rounding_s == 2e-6
    (call,) = run.calls
    assert call.gaps_s == pytest.approx((0.015, 0.025))
    assert (call.output_tokens, call.own_tokens, call.cached_tokens) == (3, 5, 1)


def test_aiperfs_times_with_a_zone_are_of_that_zone() -> None:
    zoned = {key: f"{value}+02:00" for key, value in SUMMARY.items()}
    plain, moved = run_aiperf(aiperf_record()), run_aiperf(aiperf_record(), summary=zoned)
    assert plain.window_ns is not None
    assert moved.window_ns == tuple(t_ns - 2 * 3600 * 10**9 for t_ns in plain.window_ns)


def test_aiperf_that_was_cancelled_says_so() -> None:
    assert run_aiperf(aiperf_record(), summary={**SUMMARY, "was_cancelled": True}).problem


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([], "0 profiling phases"),
        ([{"phase_kind": "profiling"}], "no interval"),
        ([{"phase_kind": "profiling", "start_ns": 5, "end_ns": 5}], "no length"),
    ],
)
def test_phases_that_say_nothing(phases: Any, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        run_aiperf(aiperf_record(), phases=phases)


def test_nothing_says_when_aiperf_measured() -> None:
    with pytest.raises(ParseError, match="says when the profiling phase was"):
        run_aiperf(aiperf_record(), summary=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ttfts": [1.0]}, "differ in length"),
        ({"itls": None}, "itls is missing"),
        ({"errors": "none"}, "errors is missing"),
    ],
)
def test_lists_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        vllm({**result(2, 4, 3, 0.0, 1.0), **change})
    with pytest.raises(ParseError, match=words):
        sglang(sglang_record(**change))


@pytest.mark.parametrize("name", PARSERS)
def test_files_that_are_missing_empty_or_cut(name: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="left no"):
        read_run(name, tmp_path)
    whole = {
        "vllm-bench": json.dumps(result(2, 4, 3, 0.0, 1.0)),
        "sglang-bench": json.dumps(sglang_record()) + "\n",
        "aiperf": json.dumps(aiperf_record()) + "\n",
    }[name]
    first = tmp_path / PARSERS[name].files[0]
    for end in (0, 1, len(whole) // 2, len(whole) - 3):
        first.write_text(whole[:end])
        with pytest.raises(ParseError):
            read_run(name, tmp_path)


def test_a_client_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="no parser reads"):
        read_run("guidellm", tmp_path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([1e300, 1e18, 2**62, 2**63 - 1, -(2**62)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
WHOLE = {
    "vllm-bench": [result(2, 4, 3, 0.0, 1.0)],
    "sglang-bench": [sglang_record()],
    "aiperf": [aiperf_record(), SUMMARY],
}


NODE = {
    "clock": {"wall_ns": 1_800_000_000_000_000_000, "mono_ns": 7_000_000_000, "step_ns": 0},
    "client": {"perf_counter": MONOTONIC},
    "marks": {"begin": {"t_ns": 1_800_000_000_000_000_001}, "end": {"t_ns": 1_800_000_005 * 10**9}},
}


@given(st.sampled_from(sorted(PARSERS)), st.data())
def test_anything_is_a_run_or_a_parse_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Whatever stands in the place of a value, no other error comes, and no bad value is kept.

    Neither does one come from placing it in time, nor from making rows of it.
    """
    records = [dict(record) for record in WHOLE[name]]
    target = records[data.draw(st.integers(0, len(records) - 1))]
    key = data.draw(st.sampled_from(sorted(target)))
    part = target[key]
    if isinstance(part, list) and part and data.draw(st.booleans()):
        target[key] = [data.draw(JSON), *part[1:]]
    elif isinstance(part, dict) and data.draw(st.booleans()):
        inner = data.draw(st.sampled_from(sorted(part)))
        target[key] = {**part, inner: data.draw(JSON)}
    else:
        target[key] = data.draw(JSON)
    files = dict(zip(PARSERS[name].files, (json.dumps(r).encode() for r in records), strict=False))
    try:
        run = PARSERS[name].parse(files)
    except ParseError:
        return
    with contextlib.suppress(ParseError):
        window(run, NODE, ADAPTERS[name])
    path = tmp_path_factory.getbasetemp() / "requests.parquet"
    write_requests(path, client_requests(run, NODE, {}, HEAD_TIMES).rows, 1)
    for call in run.calls:
        assert all(gap >= 0 for gap in call.gaps_s)
        assert (call.output_tokens or 0) >= 0
        assert call.counted or call.error


@given(st.sampled_from(sorted(PARSERS)), st.binary(max_size=60))
def test_any_bytes_are_a_run_or_a_parse_error(name: str, garbage: bytes) -> None:
    with pytest.raises(ParseError):
        PARSERS[name].parse(dict.fromkeys(PARSERS[name].files, garbage))
