"""The client's error stands beside the results, or it is said that it is not known."""

import json
from typing import Any

import pytest
from runbuilder import write_json

from servemap.report.client_error import say_point
from servemap.report.render import render


def row(count: int, status: str = "ok", ttft: float = 0.4, gap: float | None = 0.2) -> Any:
    return {
        "concurrency": count,
        "requests": 4 * count,
        "gap_ms": 20.0,
        "status": status,
        "reason": None if status == "ok" else "the server wrote 9.0 ms late (P99), limit 5 ms",
        "ttft_error_ms": {"p50": ttft / 2, "p99": ttft, "max": ttft},
        "gap_error_ms": None if gap is None else {"p50": gap / 2, "p99": gap, "max": gap},
        "server_late_ms": {"p50": 0.1, "p99": 0.2, "max": 0.3},
        "client_cpu_share": 0.02,
        "load_average": 0.7,
    }


def report(run, rows, *points, **keys):
    record = {"schema": 1, "node": "head", "status": "ok", "reasons": [], "cpus": 16}
    record |= {"load_before": "0.50 0.2 0.1", "rows": list(points)}
    write_json(run / "calibration.json", record | keys)
    return said(run, rows)


def said(run, rows):
    render(run, rows)
    return (run / "report.md").read_text()


def part(text: str, title: str) -> str:
    return text.partition(f"\n## {title}")[2].partition("\n## ")[0]


def line(text: str, case: str) -> list[str]:
    section = part(text, "The load client's own error")
    name = case.replace("_", "\\_")
    rows = [[c.strip() for c in one.strip("|").split("|")] for one in section.splitlines()]
    (found,) = [row for row in rows if row[:2] == [name, "baseline"]]
    return found


def test_one_sentence() -> None:
    assert say_point(row(64, ttft=0.6)) == "TTFT +0.300 ms, ITL ±0.200 ms at c=64"
    assert say_point(row(1, gap=None)) == "TTFT +0.200 ms at c=1"
    assert say_point(row(1, ttft=-0.4)).startswith("TTFT -0.200 ms")


def test_the_error_stands_beside_the_results(copy):
    text = report(*copy, row(1), row(8), row(16), row(32))
    caption = part(text, "Cases")
    assert "The load client's own error: TTFT +0.200 ms, ITL ±0.200 ms at c=1;" in caption
    assert "at c=32" in caption
    assert "not small" not in caption
    own = part(text, "The load client's own error")
    assert "Measured on head before the first case, load average 0.50 before it on 16 CPUs" in own
    found = line(text, "decode_throughput_1k_to_1k_c32")
    assert found[2:5] == ["32", "c=32", "+0.200 / +0.400"]
    assert found[-1] == "yes"


def test_an_error_that_is_not_small_is_flagged(copy):
    text = report(*copy, row(1), row(32, gap=2.0))
    assert "not small against" in part(text, "Cases")
    assert "Both within 10 %" in part(text, "The load client's own error"), "what `no` answers"
    found = line(text, "decode_throughput_1k_to_1k_c16")
    assert (found[3], found[6], found[-1]) == ("c=32", "±2", "no")


def test_a_point_whose_server_was_late_is_shown_and_not_used(copy):
    text = report(*copy, row(1), row(32, "server late", gap=50.0))
    found = line(text, "decode_throughput_1k_to_1k_c32")
    assert found[3].startswith("not calibrated")
    assert "the server wrote 9.0 ms late" in found[3]
    assert found[4:] == ["-"] * 5
    assert "not calibrated for" in part(text, "Cases")
    assert "not small" not in part(text, "Cases"), "the error of a late server is not known"


def test_without_a_calibration_nothing_is_said_to_be_zero(copy):
    run, rows = copy
    text = said(run, rows)
    own = part(text, "The load client's own error")
    assert "Not calibrated: there is no calibration.json." in own
    assert " 0" not in own
    assert "own error: not calibrated." in part(text, "Cases")
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["policy"] = {"calibrate": False}
    write_json(run / "run_manifest.json", manifest)
    assert "policy.calibrate is off" in said(run, rows)


@pytest.mark.parametrize("points", [["text"], [{}], [{"concurrency": "x", "status": "ok"}]])
def test_a_record_of_another_shape_is_no_crash(copy, points):
    text = report(*copy, *points, cpus="many", load_before=7, reasons="none")
    assert "not calibrated" in part(text, "Cases")


def test_a_damaged_record_is_named(copy):
    run, rows = copy
    (run / "calibration.json").write_text("{")
    assert "calibration.json" in part(said(run, rows), "Input files")
