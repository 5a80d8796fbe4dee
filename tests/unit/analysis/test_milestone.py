"""Milestones: enough valid repeats, and a CV within the limit."""

import json
from pathlib import Path
from typing import Any

import pytest
from runbuilder import build_repeat, request

from servemap.analysis.derive import derive_attempt
from servemap.analysis.milestone import write_milestones

ROW: dict[str, Any] = {"variant": "baseline", "case": "decode_c2"}


def measured(run: Path, repeat: int, window_ms: float = 2000.0, **keys: Any) -> None:
    """A repeat of 16 output tokens over a window."""
    keys.setdefault("requests", [request(i, sent_ms=400.0 * i) for i in range(4)])
    folder = build_repeat(run, repeat=repeat, segments=[("main", 0.0, window_ms)], **keys)
    derive_attempt(folder, {})


def asked(repeats: int = 3, cv: float = 0.03, **row: Any) -> list[dict[str, Any]]:
    rows = [{**ROW, "repeat": number, **row} for number in range(1, repeats + 1)]
    rule = {"phase": "m1", "repeats": 3, "cv": cv, "metric": "agg_output_tps"}
    return [{**rule, "rows": rows}]


def record(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "milestones/m1.json").read_text())
    return found


def test_three_repeats_that_agree(tmp_path: Path) -> None:
    for repeat, window in enumerate((1980.0, 2000.0, 2020.0), 1):
        measured(tmp_path, repeat, window)
    assert write_milestones(tmp_path, asked()) == []
    found = record(tmp_path)
    assert (found["passed"], found["missed"]) == (True, [])
    (case,) = found["cases"]
    assert (case["n"], case["planned"], case["starts"]) == (3, 3, 1)
    assert case["cv"] == pytest.approx(0.01, abs=1e-4)


def test_a_spread_that_is_too_large_is_said_with_by_how_much(tmp_path: Path) -> None:
    for repeat, window in enumerate((1900.0, 2000.0, 2110.0), 1):
        measured(tmp_path, repeat, window)
    (said,) = write_milestones(tmp_path, asked())
    cv = record(tmp_path)["cases"][0]["cv"]
    assert 0.05 < cv < 0.055
    assert said == (
        f"milestone m1: baseline/decode_c2: CV of agg_output_tps {cv * 100:.2f} %, limit 3 %: "
        f"{(cv - 0.03) * 100:.2f} points over"
    )
    assert record(tmp_path)["passed"] is False
    assert write_milestones(tmp_path, asked(cv=0.06)) == [], "the limit is the campaign's"


def test_fewer_valid_repeats_are_a_miss_too(tmp_path: Path) -> None:
    measured(tmp_path, 1)
    broken = [request(i, sent_ms=400.0 * i, status="failed" if i else "ok") for i in range(4)]
    measured(tmp_path, 2, requests=broken)
    (said,) = write_milestones(tmp_path, asked())
    assert "1 of 3 valid repeats" in said
    assert "r2: invalid" in said
    assert "r3: not measured" in said
    assert record(tmp_path)["cases"][0]["cv"] is None


def test_a_repeat_under_another_configuration_does_not_count(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        measured(tmp_path, repeat)
    assert write_milestones(tmp_path, asked(spec_sha256="0" * 64)) == []
    (said,) = write_milestones(tmp_path, asked(spec_sha256="1" * 64))
    assert "0 of 3 valid repeats" in said


def test_more_repeats_than_asked_all_count(tmp_path: Path) -> None:
    for repeat, window in enumerate((2000.0, 2000.0, 2000.0, 2600.0), 1):
        measured(tmp_path, repeat, window)
    (said,) = write_milestones(tmp_path, asked(repeats=4))
    assert "CV of" in said
    assert record(tmp_path)["cases"][0]["n"] == 4


def test_lengths_are_not_mixed(tmp_path: Path) -> None:
    for repeat in (1, 2):
        measured(tmp_path, repeat)
    used = {"reason": "context", "planned": {"isl": 64}, "used": {"isl": 32, "osl": 4}}
    short = [request(i, sent_ms=400.0 * i, isl=32) for i in range(4)]
    measured(tmp_path, 3, fallback=used, requests=short)
    (said,) = write_milestones(tmp_path, asked())
    assert said == "milestone m1: baseline/decode_c2: 2 of 3 valid repeats"


def test_a_case_that_failed_as_expected_is_left_out(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        build_repeat(tmp_path, repeat=repeat, status="failed", reasons=["oom"])
    assert write_milestones(tmp_path, asked(expect="failure")) == []
    assert record(tmp_path)["cases"] == []
    assert len(write_milestones(tmp_path, asked())) == 1


def test_nothing_measured_is_a_miss(tmp_path: Path) -> None:
    (said,) = write_milestones(tmp_path, asked())
    assert "0 of 3 valid repeats" in said
