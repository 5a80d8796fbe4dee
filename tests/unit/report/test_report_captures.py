"""The section on captures: status, window, shares, exposed communication, questions, marked."""

import re
from pathlib import Path
from typing import Any

from servemap.model.canon import write_json_atomic
from servemap.report.captures import captures
from servemap.report.document import Section, Table
from servemap.report.markdown import to_markdown
from servemap.report.render import build
from servemap.report.run import read_run

CASE = "captures/baseline/decode_throughput_1k_to_1k_c16"
RECORD = {
    "schema": 1,
    "kind": "torch",
    "status": "ok",
    "reasons": [],
    "steps_asked": 8,
    "ranks": 2,
    "window": {"start_ns": 1_000_000_000, "end_ns": 1_250_000_000, "ended_by": "steps"},
}


def rank(number: int, exposed_ns: int) -> dict[str, Any]:
    classes = [
        {"id": "gemm", "share": 0.75, "exposed_ns": 6_000_000 + number},
        {"id": "norm", "share": 0.001, "exposed_ns": 8_000},
        {"id": "unmatched", "share": 0.002, "exposed_ns": 16_000},
    ]  # fmt: skip
    figures = {
        "span_ns": 10_000_000,
        "communication": {"total_ns": 4_000_000, "hidden_ns": 0, "exposed_ns": exposed_ns},
        "classes": classes,
    }
    phase = {
        "phase": "decode", "steps": 8, "host_mean_ns": 2e6, "device_span_mean_ns": 1e6,
        "classes": classes,
    }  # fmt: skip
    return {"file": {"rank": number}, "devices": [{"figures": figures, "phases": [phase]}]}


ANALYSIS = {
    "schema": 1,
    "status": "ok",
    "profiled": True,
    "files": [rank(0, 1_000_000), rank(1, 2_500_000)],
    "questions": [
        {
            "question": "is there a fixed slow rank",
            "answered": True,
            "answer": "rank 1",
            "behind": [
                {
                    "where": "rank 1",
                    "name": "late at nccl",
                    "events": 1,
                    "length_ns": 2_000_000,
                    "start_ns": 1_500_000_000,
                }
            ],
        },
        {"question": "why", "answered": False, "answer": "not answerable because"},
    ],
}


def section(run: Path, rows: Any, record: Any, analysis: Any) -> Section:
    write_json_atomic(run / CASE / "capture.json", record)
    if analysis is not None:
        write_json_atomic(run / CASE / "analysis.json", analysis)
    return captures(read_run(run, rows))


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_what_an_analysed_capture_says(copy):
    run, rows = copy
    found = section(run, rows, RECORD, ANALYSIS)
    assert found.paragraphs[0].startswith("Profiled: ")
    taken, ranks, phases, questions = found.tables
    assert texts(taken) == [
        ["baseline", "decode_throughput_1k_to_1k_c16", "torch", "ok", "8",
         "the steps asked for", "250", "2", "-"]
    ]  # fmt: skip
    name = "baseline/decode_throughput_1k_to_1k_c16"
    shares = "gemm 75.0 %, unmatched 0.2 %"
    assert texts(ranks) == [
        [name, "rank 0", "device", "10", "4", "1", "10.0 %", shares],
        [name, "rank 1", "device", "10", "4", "2.50", "25.0 %", shares],
    ]
    assert texts(phases)[0] == [name, "rank 0", "decode", "8", "2", "1", shares]
    assert texts(questions) == [
        ["is there a fixed slow rank", "rank 1", "rank 1: late at nccl, 2 ms, at 1.500000 s"],
        ["why", "not answerable because", "-"],
    ]
    for table in (ranks, phases, questions):
        assert "rofiled" in table.caption


def test_the_stage_and_the_ranks_that_were_asked_for_are_named(copy):
    run, rows = copy
    spec = {"capture": {"case": "c", "num_steps": 8, "stage": "decode", "ranks": [0, 8]}}
    (table,) = section(run, rows, {**RECORD, "spec": spec}, None).tables
    assert texts(table)[0][4:8] == ["8 decode", "the steps asked for", "250", "only 0, 8"]


def test_exposed_time_by_class_and_rank_is_drawn_and_marked(copy):
    run, rows = copy
    [plot] = section(run, rows, RECORD, ANALYSIS).plots
    assert "profiled" in plot.caption
    bars = {one["name"]: (one["y"], one["x"]) for one in plot.figure["data"]}
    assert bars == {
        "gemm": (["rank 0", "rank 1"], [6.0, 6.000001]),
        "norm": (["rank 0", "rank 1"], [0.008, 0.008]),
        "unmatched": (["rank 0", "rank 1"], [0.016, 0.016]),
    }
    assert plot.figure["layout"]["barmode"] == "stack"
    many = [{"id": f"class{at}", "exposed_ns": 1000 * (20 - at)} for at in range(12)]
    files = [{"file": {"rank": 0}, "devices": [{"figures": {"classes": many}}]}]
    [plot] = section(run, rows, RECORD, {**ANALYSIS, "files": files}).plots
    assert [one["name"] for one in plot.figure["data"]][7:] == ["class7", "other classes"]
    assert plot.figure["data"][-1]["x"] == [sum(20 - at for at in range(8, 12)) / 1000]
    files = [{"file": {"rank": 0}, "devices": [{"figures": {"classes": []}}]}]
    assert section(run, rows, RECORD, {**ANALYSIS, "files": files}).plots == []


def test_a_host_stands_for_a_rank_whose_device_was_not_traced(copy):
    run, rows = copy
    host = {"span_ns": 5_000_000, "communication": {"exposed_ns": 500_000}, "classes": []}
    analysis = {**ANALYSIS, "files": [{"file": {"rank": None}, "devices": [], "host": host}]}
    row = texts(section(run, rows, RECORD, analysis).tables[1])[0]
    assert row[1:] == ["one file", "host", "5", "-", "0.500", "10.0 %", "unmatched 0.0 %"]


def test_a_capture_that_failed_or_was_not_analysed_says_why(copy):
    run, rows = copy
    failed = {**RECORD, "status": "failed", "reasons": ["1 of 2 ranks left a trace"]}
    (table,) = section(run, rows, failed, None).tables
    assert table.rows[0][-1].text == "1 of 2 ranks left a trace"
    broken = {"schema": 1, "status": "failed", "reasons": ["no trace"]}
    (table,) = section(run, rows, RECORD, broken).tables
    assert table.rows[0][-1].text == "not analysed: no trace"


def test_a_whole_report_has_the_section_whatever_is_damaged(copy):
    run, rows = copy
    for analysis in (ANALYSIS, {**ANALYSIS, "files": 3}, {"schema": 1, "status": "ok"}):
        section(run, rows, RECORD, analysis)
        said = to_markdown(build(read_run(run, rows), False), "x")
        assert re.search(r"^## Captures", said, re.MULTILINE)
    (run / CASE / "analysis.json").write_text("{")
    said = to_markdown(build(read_run(run, rows), False), "x")
    assert "analysis.json is damaged" in said


def test_captures_never_enter_results(copy):
    run, rows = copy
    before = build(read_run(run, rows), False)
    section(run, rows, RECORD, ANALYSIS)
    after = build(read_run(run, rows), False)
    changed = {a.id for a, b in zip(before.sections, after.sections, strict=True) if a != b}
    assert changed == {"captures", "not-measured"}


def test_a_capture_by_a_stand_in_is_named_where_the_report_begins(copy):
    run, rows = copy
    section(run, rows, {**RECORD, "kind": "nsys", "simulated": True}, None)
    assert "capture baseline/decode_throughput_1k_to_1k_c16" in read_run(run, rows).simulated
    said = to_markdown(build(read_run(run, rows), False), "x")
    assert re.search(r"Simulated, not measured: .*capture baseline/decode", said)
