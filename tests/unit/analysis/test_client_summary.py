"""A client's own summary made again from its requests, and its requests as rows of ours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.client_requests import FLAG_NO_START, client_requests
from servemap.analysis.client_summary import check_summary, client_table, compare
from servemap.analysis.load_records import read_load
from servemap.analysis.requests import FLAG_AT_ONCE, FLAG_MORE_EVENTS
from servemap.model.clients import OWN_OPTIONS
from servemap.parsers.clients import aiperf, sglang_bench, vllm_bench
from servemap.parsers.clients.records import FLAG_AS_ASKED, ClientCall, ClientRun
from servemap.parsers.clients.registry import PARSERS
from servemap.telemetry.clock import HEAD_TIMES, LoadTimes, NodeClock
from tests.fake_client import result
from tests.parts import need

WALL_NS, MONO_NS = 1_800_000_000_000_000_000, 7_000_000_000
CLIENT: dict[str, Any] = {
    "clock": {"wall_ns": WALL_NS, "mono_ns": MONO_NS},
    "warmup": {"ok": 3, "failed": 1},
}
STREAM = {"isl": 10, "osl": 3, "num_prompts": 2}
LOAD: dict[str, Any] = {
    "request": {"ignore_eos": True},
    "segments": [{"name": "main", "streams": [STREAM]}],
}


def run_of(record: dict[str, Any]) -> ClientRun:
    return vllm_bench.parse({vllm_bench.RESULT: json.dumps(record).encode()})


def real() -> list[tuple[str, ClientRun]]:
    own = Path(need("corpus"), "own")

    def read(name: str) -> bytes:
        return (own / name).read_bytes()

    found = [
        ("vllm-bench", vllm_bench.parse({vllm_bench.RESULT: read(name)}))
        for name in ("vllm_bench_serve.json", "vllm_bench_serve_llamacpp.json")
    ]
    found += [
        ("sglang-bench", sglang_bench.parse({sglang_bench.RESULT: read(name)}))
        for name in ("sglang_sglang.jsonl", "sglang_vllm.jsonl")
    ]
    files = {
        aiperf.RECORDS: read("aiperf_llamacpp_profile_export.jsonl"),
        aiperf.SUMMARY: read("aiperf_llamacpp_profile_export_aiperf.json"),
        aiperf.PHASES: read("aiperf_llamacpp_phase_manifest.json"),
    }
    return [*found, ("aiperf", aiperf.parse(files))]


def test_every_client_has_its_meanings() -> None:
    assert client_table().keys() == PARSERS.keys() == OWN_OPTIONS.keys()
    for row in client_table().values():
        assert {"TTFT", "ITL", "Percentiles", "Window", "Warm-up", "Connections"} <= row[
            "definitions"
        ].keys()


def test_real_summaries_agree_with_their_requests() -> None:
    for name, run in real():
        check, kept = check_summary(run, name)
        assert check.ok is True, check
        assert isinstance(check.value, float)
        assert check.value < 1e-12
        compared = kept["figures"].keys() - set(kept["not_compared"])
        assert len(compared) >= 15, name


def test_each_real_figure_that_is_changed_is_found() -> None:
    """Not one of the compared figures is compared with itself."""
    for name, run in real():
        for figure in [one.name for one in compare(run, name)[0]]:
            changed = run.summary | {figure: run.summary[figure] * 1.001 + 1e-6}
            check, _ = check_summary(run._replace(summary=changed), name)
            assert check.ok is False, (name, figure)
            assert figure in check.note


def test_what_a_client_estimates_or_does_not_save_is_named_and_not_compared() -> None:
    by_name = dict(real())
    _, kept = check_summary(by_name["aiperf"], "aiperf")
    assert "inter_chunk_latency.p99" in kept["not_compared"]
    assert "inter_chunk_latency.avg" not in kept["not_compared"]
    _, kept = check_summary(by_name["sglang-bench"], "sglang-bench")
    assert "p99_e2e_latency_ms" in kept["not_compared"]
    assert "mean_tpot_ms" in kept["not_compared"]


def test_a_summary_of_nothing_is_no_proof() -> None:
    check, _ = check_summary(ClientRun([], {}, 1.0), "vllm-bench")
    assert check.ok is False


def test_totals_alone_are_no_proof() -> None:
    """As of a version that gives its statistics other names."""
    run = run_of(result(2, 4, 3, 0.0, 1.0))
    totals = {name: said for name, said in run.summary.items() if not name.endswith("_ms")}
    check, kept = check_summary(run._replace(summary=totals), "vllm-bench")
    assert check.ok is False
    assert "no statistic of times" in check.note
    assert kept["figures"]["completed"] == 2


@pytest.mark.parametrize(
    ("step_ns", "ok"), [(0, True), (-9_000_000, True), (11_000_000, False), (None, None)]
)
def test_a_clock_that_is_set_makes_stamps_of_the_wall_clock_worthless(
    tmp_path: Path, step_ns: int | None, ok: bool | None
) -> None:
    """A window of a second is wrong by the step, and all rates with it."""
    folder = tmp_path / "client"
    folder.mkdir()
    record = {"metadata": {"benchmark_phase": "profiling"}, "metrics": {}}
    phase = {"phase_kind": "profiling", "start_ns": WALL_NS, "end_ns": WALL_NS + 10**9}
    (folder / aiperf.RECORDS).write_text(json.dumps(record))
    (folder / aiperf.PHASES).write_text(json.dumps({"phases": [phase]}))
    said = {"client": {"name": "aiperf"}, "clock": {"step_ns": step_ns}}
    checks = {c.name: c for c in read_load(tmp_path, said, LOAD, HEAD_TIMES, whole=True).checks}
    assert checks["client_clock_set_ms"].ok is ok


@pytest.mark.parametrize("name", ["median_ttft_ms", "request_throughput"])
def test_a_figure_that_is_no_number_does_not_agree(name: str) -> None:
    run = run_of({**result(2, 4, 3, 0.0, 1.0), name: float("nan")})
    check, _ = check_summary(run, "vllm-bench")
    assert check.ok is False
    assert f"{name} is no number" in check.note
    unlike = run_of({**result(2, 4, 1, 0.0, 1.0), "mean_tpot_ms": float("nan")})
    tpot = [one for one in compare(unlike, "vllm-bench")[0] if one.name == "mean_tpot_ms"]
    assert tpot == [], "of one token there is none"


def test_rates_may_differ_by_the_rounding_of_their_time() -> None:
    record = {**result(2, 4, 3, 0.0, 1.0), "request_throughput": 2.00001}
    run = run_of(record)
    assert check_summary(run, "vllm-bench")[0].ok is False
    assert check_summary(run._replace(rounding_s=1e-5), "vllm-bench")[0].ok is True


@given(st.lists(st.floats(1e-4, 10), min_size=1, max_size=30), st.floats(0, 100))
def test_statistics_are_numpys(values: list[float], percent: float) -> None:
    calls = [ClientCall(str(n), True, ttft_s=v, own_tokens=1) for n, v in enumerate(values)]
    said = {
        "mean_ttft_ms": float(np.mean(values)) * 1e3,
        "std_ttft_ms": float(np.std(values)) * 1e3,
        f"p{percent:.3f}_ttft_ms": float(np.percentile(values, float(f"{percent:.3f}"))) * 1e3,
    }
    compared, _ = compare(ClientRun(calls, said, 1.0), "vllm-bench")
    assert len(compared) == 3
    assert all(one.difference < 1e-9 for one in compared)


def test_rows_of_requests_that_have_stamps() -> None:
    run = run_of(result(2, 10, 3, 9.0, 1.0, failed=1))
    requests = client_requests(run, CLIENT, LOAD, LoadTimes(NodeClock(), 5))
    lost, good = requests.rows
    assert (requests.warmup_ok, requests.warmup_failed) == (3, 1)
    assert good.sent_ns == WALL_NS + 2_000_000_000 + 5
    assert good.first_ns == good.sent_ns + 200_000_000
    assert good.ttft_s == pytest.approx(0.2)
    assert good.e2e_s == pytest.approx(1.0)
    assert good.tpot_s == pytest.approx(0.4)
    assert good.itl_s == pytest.approx([0.4, 0.4])
    assert (good.input_planned, good.output_planned) == (10, 3)
    assert (good.first_text_ns, good.attempts, good.http_status) == (None, None, None)
    assert (lost.status, lost.error) == ("failed", "client: OSError: no way")
    assert lost.ttft_s is None
    assert lost.sent_ns == good.sent_ns


def test_rows_of_requests_without_a_start() -> None:
    call = ClientCall("0", True, ttft_s=0.5, gaps_s=(0.1, 0.1), output_tokens=3, input_tokens=10)
    (row,) = client_requests(
        ClientRun([call], {}, 1.0), CLIENT, LOAD, LoadTimes(NodeClock(), 5)
    ).rows
    assert (row.sent_ns, row.first_ns, row.last_ns) == (None, None, None)
    assert FLAG_NO_START in row.flags
    assert row.ttft_s == pytest.approx(0.5)
    assert row.e2e_s == pytest.approx(0.7)


def test_a_length_that_was_only_asked_for_counts_where_it_cannot_be_shorter() -> None:
    call = ClientCall(
        "0", True, ttft_s=0.5, gaps_s=(0.1,), output_tokens=3, input_tokens=10,
        flags=(FLAG_AS_ASKED,),
    )  # fmt: skip
    run = ClientRun([call], {}, 1.0)
    (row,) = client_requests(run, CLIENT, LOAD, HEAD_TIMES).rows
    assert (row.input_tokens, row.output_tokens) == (None, 3)
    (row,) = client_requests(run, CLIENT, {**LOAD, "request": {}}, HEAD_TIMES).rows
    assert row.output_tokens is None


def test_an_answer_without_time_between_its_tokens_is_said_to_be_one() -> None:
    """aiperf gives each event of one piece of an answer the same time: no TPOT follows from it."""
    call = ClientCall("0", True, ttft_s=0.5, gaps_s=(0.0, 0.0), output_tokens=3)
    (row,) = client_requests(ClientRun([call], {}, 1.0), CLIENT, LOAD, HEAD_TIMES).rows
    assert (row.tpot_s, row.flags) == (None, (FLAG_AT_ONCE, FLAG_NO_START))
    for other in (call._replace(gaps_s=(0.0, 0.1)), call._replace(gaps_s=(), output_tokens=1)):
        (row,) = client_requests(ClientRun([other], {}, 1.0), CLIENT, LOAD, HEAD_TIMES).rows
        assert FLAG_AT_ONCE not in row.flags


def test_more_events_than_tokens_are_said_to_be() -> None:
    call = ClientCall("0", True, ttft_s=0.5, gaps_s=(0.1, 0.1, 0.1), output_tokens=3)
    (row,) = client_requests(ClientRun([call], {}, 1.0), CLIENT, LOAD, HEAD_TIMES).rows
    assert FLAG_MORE_EVENTS in row.flags
