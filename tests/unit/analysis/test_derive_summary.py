import csv
import json

import pytest
from campaignbuilder import build_mixed
from runbuilder import build_repeat, request, write_json

from servemap.analysis.case_tables import table_families
from servemap.analysis.derive import derive_attempt
from servemap.analysis.summary import summarize

OK = {"variant": "baseline", "case": "decode_c2"}


def measured(run, *, ttft_ms=50.0, **kwargs):
    records = [request(i, sent_ms=500.0 * i, ttft_ms=ttft_ms) for i in range(4)]
    folder = build_repeat(run, requests=kwargs.pop("requests", records), **kwargs)
    derive_attempt(folder, {})
    return folder


def read_csv(path):
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def plan(*rows):
    return [{**OK, "repeat": 1, **row} for row in rows]


def test_one_row_a_planned_repeat_whatever_became_of_it(tmp_path):
    run = tmp_path / "run"
    measured(run)
    measured(run, case="failed", status="failed", reasons=["oom"])
    build_repeat(run, case="skipped", status="not_run", reasons=["launch failed"])
    rows = summarize(run, plan({}, {"case": "failed"}, {"case": "skipped"}, {"case": "never"}))
    kept = [(r["case"], r["status"], r["verdict"], r["reasons"]) for r in rows]
    assert kept == [
        ("decode_c2", "ok", "valid", ""),
        ("failed", "failed", "invalid", "oom"),
        ("skipped", "not_run", "invalid", "launch failed"),
        ("never", "not_run", "invalid", "not measured"),
    ]
    table = read_csv(run / "summary.csv")
    head = list(table[0])[:8]
    assert head == ["run", "variant", "case", "repeat", "attempt", "status", "verdict", "reasons"]
    assert [r["case"] for r in table] == [r["case"] for r in rows]
    assert float(table[0]["ttft_p95_ms"]) == pytest.approx(50.0)
    assert table[1]["agg_output_tps"] == ""
    lines = [json.loads(line) for line in (run / "summary.jsonl").read_text().splitlines()]
    assert lines == rows
    assert lines[3]["agg_output_tps"] is None


def test_aggregate_over_repeats_by_hand(tmp_path):
    run = tmp_path / "run"
    for repeat, ttft in enumerate((40.0, 50.0, 60.0), 1):
        measured(run, repeat=repeat, ttft_ms=ttft)
    summarize(run, plan({}, {"repeat": 2}, {"repeat": 3}))
    (row,) = read_csv(run / "aggregate.csv")
    assert (row["n"], row["planned"]) == ("3", "3")
    assert float(row["ttft_p50_ms_mean"]) == pytest.approx(50.0)
    assert float(row["ttft_p50_ms_cv"]) == pytest.approx(0.2)
    half = 4.302653 * 10.0 / 3**0.5
    assert float(row["ttft_p50_ms_ci95_low"]) == pytest.approx(50 - half)
    assert float(row["ttft_p50_ms_ci95_high"]) == pytest.approx(50 + half)


def test_one_valid_repeat_has_no_spread(tmp_path):
    run = tmp_path / "run"
    measured(run)
    summarize(run, plan({}))
    (row,) = read_csv(run / "aggregate.csv")
    assert row["agg_output_tps_mean"] == "8.0"
    assert row["agg_output_tps_cv"] == row["agg_output_tps_ci95_low"] == ""


def test_invalid_repeats_are_evidence_and_enter_no_mean(tmp_path):
    run = tmp_path / "run"
    measured(run)
    failed = [request(i, sent_ms=500.0 * i, status="failed" if i else "ok") for i in range(4)]
    measured(run, repeat=2, requests=failed)
    summarize(run, plan({}, {"repeat": 2}, {"repeat": 3}))
    rows = read_csv(run / "summary.csv")
    assert rows[1]["verdict"] == "invalid"
    assert rows[1]["agg_output_tps"] == "2.0"
    (row,) = read_csv(run / "aggregate.csv")
    assert (row["planned"], row["n"], row["agg_output_tps_mean"]) == ("3", "1", "8.0")


def test_fallback_lengths_are_never_averaged_with_planned_ones(tmp_path):
    run = tmp_path / "run"
    measured(run)
    fallback = {"reason": "context", "planned": {"isl": 64}, "used": {"isl": 32, "osl": 4}}
    measured(
        run,
        repeat=2,
        fallback=fallback,
        ttft_ms=10.0,
        requests=[request(i, sent_ms=500.0 * i, ttft_ms=10, isl=32) for i in range(4)],
    )
    summarize(run, plan({}, {"repeat": 2}))
    rows = read_csv(run / "aggregate.csv")
    assert [(r["lengths"], r["isl"], r["n"], r["ttft_p50_ms_mean"]) for r in rows] == [
        ("planned", "64", "1", "50.0"),
        ("fallback", "32", "1", "10.0"),
    ]


def test_derived_files_of_another_attempt_are_ignored(tmp_path):
    run = tmp_path / "run"
    folder = measured(run)
    meta = json.loads((folder / "meta.json").read_text())
    write_json(folder / "meta.json", {**meta, "attempt": 2})
    (row,) = summarize(run, plan({}))
    assert row["agg_output_tps"] is None
    assert row["verdict"] == "invalid"
    assert "attempt 1" in row["reasons"]
    table = read_csv(run / "tables/case_cpu_summary.csv")
    assert [r["mean"] for r in table] == ["-"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 99}', b"\xff\x00"])
@pytest.mark.parametrize("name", ["meta.json", "metrics.json"])
def test_a_damaged_record_is_a_named_row(tmp_path, name, content):
    run = tmp_path / "run"
    folder = measured(run)
    (folder / name).write_bytes(content)
    (row,) = summarize(run, plan({}))
    assert row["verdict"] == "invalid"
    assert name in row["reasons"]


def test_tables_one_row_a_case_segment_and_entity(tmp_path):
    run = tmp_path / "run"
    measured(run)
    summarize(run, plan({}, {"case": "never"}))
    names = sorted(p.name for p in (run / "tables").iterdir())
    assert names == [
        "baseline_limits.csv",
        "baselines.csv",
        *sorted(f"case_{family}_summary.csv" for family in table_families()),
        "hardware_use.csv",
        "limits.csv",
        "percentiles.csv",
        "side_by_side.csv",
        "targets.csv",
        "telemetry_gaps.csv",
        "throughput_over_time.csv",
    ]
    cores = read_csv(run / "tables/case_hot_cores_summary.csv")
    row = next(r for r in cores if (r["entity"], r["metric"]) == ("cpu0", "cpu_util"))
    assert (row["n"], float(row["mean"]), row["unit"]) == ("4", pytest.approx(80.0), "percent")
    assert (row["coverage"], row["segment"]) == ("1.0", "main")
    cpu = read_csv(run / "tables/case_cpu_summary.csv")
    never = [r for r in cpu if r["case"] == "never"]
    assert [(r["entity"], r["n"], r["mean"], r["coverage"]) for r in never] == [("-",) * 4]
    assert (row["state"], never[0]["state"]) == ("ok", "not_run")
    processes = read_csv(run / "tables/case_server_processes_summary.csv")
    assert {r["process"] for r in processes if r["entity"] == "pid:42"} == {"llama"}


def test_a_collector_that_told_nothing_has_a_row_that_says_why(tmp_path):
    run = tmp_path / "run"
    states = {"head/proc": "ok", "head/nvidia_smi": "absent", "worker/nvidia_smi": "failed"}
    records = {key: {"status": state, "samples": 0} for key, state in states.items()}
    measured(run, facts={"collectors": records})
    summarize(run, plan({}))
    gpu = read_csv(run / "tables/case_gpu_summary.csv")
    assert [(r["node"], r["collector"], r["state"]) for r in gpu] == [
        ("head", "nvidia_smi", "absent"),
        ("worker", "nvidia_smi", "failed"),
    ]
    assert {r[name] for r in gpu for name in ("entity", "metric", "n", "mean", "p95", "max")} == {
        "-"
    }
    dcgm = read_csv(run / "tables/case_dcgm_summary.csv")
    assert [(r["node"], r["state"], r["mean"]) for r in dcgm] == [("-", "no collector", "-")]


def test_a_tool_of_another_vendor_need_not_be_there(tmp_path):
    run = tmp_path / "run"
    states = {"head/proc": "ok", "head/mpstat": "absent", "worker/mpstat": "absent"}
    records = {key: {"status": state, "samples": 0} for key, state in states.items()}
    measured(run, facts={"collectors": records})
    summarize(run, plan({}))
    cpu = read_csv(run / "tables/case_cpu_summary.csv")
    assert {(r["node"], r["collector"], r["state"]) for r in cpu} == {
        ("head", "proc", "ok"),
        ("worker", "mpstat", "absent"),
    }


def test_a_disturbed_repeat_is_evidence_and_enters_no_mean(tmp_path):
    run = tmp_path / "run"
    measured(run)
    facts = {"cause": "disturbed"}
    reasons = ["the load client was saturated: client_lag_ms: 400, limit 100"]
    measured(run, repeat=2, ttft_ms=999.0, status="failed", facts=facts, reasons=reasons)
    rows = summarize(run, plan({}, {"repeat": 2}))
    assert [(row["status"], row["verdict"]) for row in rows] == [
        ("ok", "valid"),
        ("failed", "invalid"),
    ]
    assert rows[1]["agg_output_tps"] is not None
    assert reasons[0] in rows[1]["reasons"]
    (aggregate,) = read_csv(run / "aggregate.csv")
    assert (aggregate["n"], aggregate["ttft_p50_ms_mean"]) == ("1", "50.0")


def test_every_percentile_of_every_stream_is_in_a_table(tmp_path):
    run = tmp_path / "run"
    measured(run)
    summarize(run, plan({}, {"case": "never"}))
    rows = read_csv(run / "tables/percentiles.csv")
    assert {r["case"] for r in rows} == {"decode_c2"}
    ttft = next(r for r in rows if (r["stream"], r["figure"]) == ("measured", "ttft_s"))
    points = ["mean", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max"]
    assert [float(ttft[name]) for name in points] == pytest.approx([0.05] * len(points))
    assert (ttft["n"], ttft["few_for_p99"], ttft["verdict"]) == ("4", "True", "valid")
    assert {r["stream"] for r in rows} == {"measured", "main"}


def test_injected_requests_are_a_stream_beside_what_was_measured(tmp_path):
    run = tmp_path / "run"
    build_mixed(run, "baseline", 1.0)
    summarize(run, plan({"case": "decode_with_long_prefill"}))
    rows = read_csv(run / "tables/percentiles.csv")
    counts = {
        (r["segment"], r["stream"]): (r["n"], float(r["max"]))
        for r in rows
        if r["figure"] == "ttft_s"
    }
    assert counts == {
        ("control", "measured"): ("16", pytest.approx(0.05)),
        ("control", "background"): ("16", pytest.approx(0.05)),
        ("injected", "measured"): ("16", pytest.approx(0.05)),
        ("injected", "background"): ("16", pytest.approx(0.05)),
        ("injected", "injected"): ("1", pytest.approx(0.35)),
    }


def test_nothing_planned_is_an_empty_summary(tmp_path):
    assert summarize(tmp_path / "run", []) == []
    assert read_csv(tmp_path / "run/summary.csv") == []
    assert (tmp_path / "run/aggregate.csv").read_text().startswith("run,variant,case")
