"""Targets against measured figures: pass, fail, not measured; the seeds' two tables in form."""

import csv
import json

import pytest
from runbuilder import build_repeat, request

from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import read_repeat
from servemap.analysis.summary import summarize
from servemap.analysis.targets import judge, missed, over_repeats
from servemap.report.run import read_run
from servemap.report.targets import targets as section

ROW = {"variant": "baseline", "case": "decode_c2", "repeat": 1}
SEED = [
    "success_rate >= 0.99",
    "cache_hit_rate >= 0.5",
    "ttft_p90_s <= 0.06",
    "output_tps_p10 >= 2000",
    "weighted_tok_s >= 800",
]
WEIGHTS = {"uncached_input": 2.8, "cached_input": 0.56, "output": 16.8}


def wanted(*texts, gate=False):
    return [{"target": text, "gate": gate} for text in texts]


def measured(run, records=None, **kwargs):
    case_spec = {"kind": "prefix"}
    folder = build_repeat(run, requests=records, case_spec=case_spec, **kwargs)
    derive_attempt(folder, {"weights": WEIGHTS})
    return read_repeat(run, {**ROW, "repeat": kwargs.get("repeat", 1)})


def hits(index, cached=48, osl=4, **changes):
    usage = {"prompt_tokens": 64, "completion_tokens": osl, "cached_tokens": cached}
    return request(index, sent_ms=500.0 * index, usage=usage, osl=osl, **changes)


def test_the_five_targets_of_the_study(tmp_path):
    repeat = measured(tmp_path / "run", [hits(i) for i in range(4)])
    found = {one.wanted.figure.name: one for one in judge(repeat, wanted(*SEED))}
    assert {name: one.result for name, one in found.items()} == {
        "success_rate": "pass",
        "cache_hit_rate": "pass",
        "ttft_p90_s": "pass",
        "output_tps_p10": "fail",
        "weighted_tok_s": "fail",
    }
    assert found["cache_hit_rate"].value == 0.75
    assert found["ttft_p90_s"].value == pytest.approx(0.05)
    assert found["output_tps_p10"].value == pytest.approx(4 / 0.03)
    # 4 x (16 x 2.8 + 48 x 0.56 + 4 x 16.8) over the window of 2 s
    assert found["weighted_tok_s"].value == pytest.approx(4 * (44.8 + 26.88 + 67.2) / 2)


def test_an_invalid_measurement_neither_passes_nor_fails(tmp_path):
    records = [hits(i, status="failed" if i else "ok") for i in range(4)]
    repeat = measured(tmp_path / "run", records)
    assert repeat.verdict == "invalid"
    for one in judge(repeat, wanted("ttft_p90_s <= 5", "success_rate >= 0.99")):
        assert (one.result, one.value) == ("not measured", None)
        assert "error_share" in one.reason


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("cache_hit_rate >= 0.5", "does not report cached tokens"),
        ("weighted_tok_s >= 1", "does not report cached tokens"),
        ("goodput_req_s >= 1", "no SLO"),
        ("tpot_p50_s <= 1", "no answer had time between its tokens"),
    ],
)
def test_a_figure_that_is_not_there_is_not_measured_and_says_why(tmp_path, target, reason):
    repeat = measured(tmp_path / "run", [hits(i, cached=None, osl=1) for i in range(4)])
    (one,) = judge(repeat, wanted(target))
    assert one.result == "not measured"
    assert reason in one.reason


def test_a_case_passes_if_every_valid_repeat_does():
    assert over_repeats(["pass", "not measured", "pass"]) == "pass"
    assert over_repeats(["pass", "fail"]) == "fail"
    assert over_repeats(["not measured"]) == "not measured"


def test_targets_of_repeats_are_a_table_and_those_of_the_gate_fail_it(tmp_path):
    run = tmp_path / "run"
    measured(run, [hits(i) for i in range(4)])
    slow = wanted("output_tps_p10 >= 2000", gate=True)
    rows = [
        {**ROW, "targets": [*wanted(*SEED), *slow]},
        {**ROW, "case": "never", "targets": wanted("ttft_p90_s <= 5")},
    ]
    summarize(run, rows)
    with (run / "tables/targets.csv").open(newline="") as handle:
        written = list(csv.DictReader(handle))
    assert [(r["case"], r["result"]) for r in written] == [
        *(("decode_c2", result) for result in ("pass", "pass", "pass", "fail", "fail", "fail")),
        ("never", "not measured"),
    ]
    assert written[-1]["reason"] == "not measured"
    assert written[-1]["value"] == ""
    strict, others = missed(run, rows)
    assert strict == ["target output_tps_p10 >= 2000: fail in baseline/decode_c2 r1: 133.3"]
    assert len(others) == 3


def test_repeats_that_say_the_same_are_one_line(tmp_path):
    run = tmp_path / "run"
    broken = [hits(i, status="failed" if i else "ok") for i in range(4)]
    for repeat in (1, 2, 3):
        measured(run, [hits(i) for i in range(4)], repeat=repeat)
    rows = [{**ROW, "repeat": r, "targets": wanted("output_tps_p10 >= 2000")} for r in (1, 2, 3)]
    fail = "target output_tps_p10 >= 2000: fail in baseline/decode_c2"
    assert missed(run, rows)[1] == [f"{fail}, all 3 repeats: 133.3, 133.3, 133.3"]
    measured(run, broken, repeat=2)
    broken = fail.replace("fail", "not measured")
    assert missed(run, rows)[1] == [
        f"{fail} r1: 133.3",
        f"{broken} r2: invalid: error_share",
        f"{fail} r3: 133.3",
    ]
    never = [{**row, "case": "never"} for row in rows]
    (line,) = missed(run, never)[1]
    assert line.endswith("not measured in baseline/never, all 3 repeats: not run")


def test_a_cell_that_was_not_measured_is_short(tmp_path):
    run = tmp_path / "run"
    long = "the server died: " + "; ".join(f"line {k} of its log" for k in range(40))
    facts = {"status": "failed", "reasons": [long, long, f"{long}\n  where: n1"]}
    measured(run, [hits(i) for i in range(4)], **facts)
    (run / "run_manifest.json").write_text(json.dumps({"schema": 1}))
    rows = [{**ROW, "targets": wanted("ttft_p90_s <= 5")}]
    _, case = section(read_run(run, rows)).tables
    assert case.rows[0][1].note == "not measured, failed: the server died"


def test_requests_of_repeats_that_differ_are_a_range(tmp_path):
    run = tmp_path / "run"
    for repeat, count in ((1, 4), (2, 3), (3, 2)):
        measured(run, [hits(i) for i in range(count)], repeat=repeat)
    (run / "run_manifest.json").write_text(json.dumps({"schema": 1}))
    rows = [{**ROW, "repeat": repeat} for repeat in (1, 2, 3)]
    points = section(read_run(run, rows)).tables[0]
    assert dict(zip(points.columns, points.rows[0], strict=True))["Requests"].text == "2 to 4"


def test_the_reports_tables_have_the_form_of_the_studys(tmp_path):
    run = tmp_path / "run"
    measured(run, [hits(i) for i in range(4)])
    rows = [{**ROW, "targets": wanted(*SEED)}]
    (run / "run_manifest.json").write_text(json.dumps({"schema": 1}))
    points, case = section(read_run(run, rows)).tables
    assert points.columns == [
        "Case", "Variant", "C", "Requests", "Success Rate", "TTFT P90 s", "Output TPS P10",
        "Output TPS P50", "Aggregate Output TPS",
    ]  # fmt: skip
    assert [cell.text for cell in points.rows[0]] == [
        "decode_c2", "baseline", "2", "4", "100.00 %", "0.05", "133.3", "133.3", "8",
    ]  # fmt: skip
    assert case.columns == ["Figure", "baseline", "Target"]
    shown = [(row[0].text, row[1].text, row[1].note, row[2].text) for row in case.rows]
    assert shown == [
        ("Success Rate", "100.00 %", "pass", ">= 99.00 %"),
        ("Cache Hit Rate", "75.00 %", "pass", ">= 50.00 %"),
        ("TTFT P90 s", "0.05", "pass", "<= 0.06"),
        ("Output TPS P10", "133.3", "fail", ">= 2,000"),
        ("Weighted Token Throughput", "277.8", "fail", ">= 800"),
        ("Aggregate Output TPS", "8", "", "-"),
        ("Aggregate Uncached Input TPS", "32", "", "-"),
        ("Aggregate Cached Input TPS", "96", "", "-"),
    ]
