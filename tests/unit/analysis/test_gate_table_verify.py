"""What people and CI read after a run: verdicts, the short table, damaged files."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.gate import failures, said
from servemap.analysis.table import result_table
from servemap.analysis.verify import damaged_files
from servemap.model.canon import file_sha256
from servemap.model.errors import ResultsError

ROW = {"variant": "v", "case": "c", "repeat": 1}
OK = {"status": "ok", "attempt": 2, "ended_ns": 5}
VALID: dict[str, Any] = {
    "attempt": 2,
    "verdict": "valid",
    "segments": [
        {"name": "main", "metrics": {"ttft_s": {"p50": 0.012}, "tpot_s": None,
                                     "agg_output_tps": 0, "input_tok_s": 512.3456}},
        {"name": "other", "metrics": {}},
    ],
}  # fmt: skip


def write(folder: Path, meta: Any, metrics: Any, row: dict[str, Any] = ROW) -> None:
    repeat = folder / "cases" / row["variant"] / row["case"] / f"r{row['repeat']}"
    repeat.mkdir(parents=True, exist_ok=True)
    for name, data in (("meta.json", meta), ("metrics.json", metrics)):
        if data is not None:
            (repeat / name).write_text(data if isinstance(data, str) else json.dumps(data))
    if isinstance(meta, dict) and "attempt" in meta:
        attempt = repeat / "attempts" / f"{meta['attempt']:03d}"
        attempt.mkdir(parents=True, exist_ok=True)
        (attempt / "meta.json").write_text(json.dumps({**meta, "schema": 1}))


@pytest.mark.parametrize(
    ("meta", "metrics", "problem"),
    [
        (OK, VALID, None),
        (None, None, "not measured"),
        ("{", VALID, "not measured"),
        ({"status": "failed", "reasons": ["a", "b"]}, VALID, "failed: a; b"),
        ({"status": "not_run", "reasons": []}, None, "not_run: no reason recorded"),
        (OK, None, "measured, but not derived yet"),
        (OK, {**VALID, "attempt": 1}, "measured, but not derived yet"),
        (OK, {"attempt": 2, "verdict": "invalid", "reasons": ["short"]}, "invalid: short"),
        (OK, {"attempt": 2}, "invalid: no reason recorded"),
    ],
)
def test_the_gate(tmp_path: Path, meta: Any, metrics: Any, problem: str | None) -> None:
    write(tmp_path, meta, metrics)
    assert failures(tmp_path, [ROW]) == ([] if problem is None else [f"v/c r1: {problem}"])


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        (None, "interrupted, 2 attempts"),
        ({"schema": 1, "status": "failed", "cause": "interrupted"}, "interrupted, 2 attempts"),
        ({"schema": 1, "status": "ok", "cause": None}, "its meta.json is gone, 2 attempts"),
    ],
)
def test_a_repeat_that_has_attempts_and_no_record(tmp_path: Path, newest: Any, said: str) -> None:
    for number in ("001", "002"):
        (tmp_path / "cases/v/c/r1/attempts" / number).mkdir(parents=True)
    if newest is not None:
        (tmp_path / "cases/v/c/r1/attempts/002/meta.json").write_text(json.dumps(newest))
    assert failures(tmp_path, [ROW]) == [f"v/c r1: {said}"]
    assert said in result_table(tmp_path, [ROW])


def test_figures_of_an_older_attempt_or_spec_are_not_shown(tmp_path: Path) -> None:
    old = {"attempt": 1, "verdict": "invalid", "reasons": ["client_lag"]}
    write(tmp_path, OK, old)
    table = result_table(tmp_path, [ROW])
    assert "not derived" in table
    assert "client_lag" not in table
    write(tmp_path, OK, VALID)
    table = result_table(tmp_path, [ROW], {("v", "c", 1): "changed, is measured again"})
    assert "changed, is measured again" in table
    assert "valid" not in table
    assert "512.3" not in table


def test_what_was_marked_instead_of_refused_is_seen(tmp_path: Path) -> None:
    write(tmp_path, {**OK, "server": {"drift": ["rails: n2: eth9 is down"]}}, VALID)
    assert "valid, marked" in result_table(tmp_path, [ROW])
    write(tmp_path, {**OK, "server": {"drift": []}}, VALID)
    assert "marked" not in result_table(tmp_path, [ROW])


def test_a_repeat_of_another_configuration_is_not_valid(tmp_path: Path) -> None:
    write(tmp_path, {**OK, "spec_sha256": "old"}, VALID)
    assert failures(tmp_path, [{**ROW, "spec_sha256": "old"}]) == []
    (said,) = failures(tmp_path, [{**ROW, "spec_sha256": "new"}])
    assert "measured under another configuration" in said


def cells(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()[2:]]


def test_each_line_of_the_gate_says_whether_it_fails_it() -> None:
    assert said(["v/c r1: not measured"], ["target ttft_p90_s <= 1: fail in v/c r1: 2"]) == [
        "fails the gate: v/c r1: not measured",
        "does not fail the gate: target ttft_p90_s <= 1: fail in v/c r1: 2",
    ]
    assert said([], []) == []


def test_a_line_per_segment_and_no_figure_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path, OK, VALID)
    main, other = cells(result_table(tmp_path, [ROW]))
    assert main == ["v", "c", "1", "main", "valid", "12", "-", "-", "0", "512.3"]
    assert other == ["v", "c", "1", "other", "valid", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("meta", "metrics", "said"),
    [
        (None, None, "not measured"),
        ({"status": "failed", "reasons": ["server died\n  where"]}, VALID, "failed: server died"),
        (OK, {**VALID, "verdict": "invalid", "reasons": ["too short"]}, "invalid: too short"),
        (OK, {**VALID, "attempt": 1}, "not derived"),
        (OK, None, "not derived"),
    ],
)
def test_a_repeat_without_valid_figures_shows_none(
    tmp_path: Path, meta: Any, metrics: Any, said: str
) -> None:
    write(tmp_path, meta, metrics)
    table = result_table(tmp_path, [ROW])
    assert said in table
    assert "12" not in table
    assert "512" not in table


def test_the_last_results_are_those_that_ended_last(tmp_path: Path) -> None:
    rows = [{**ROW, "repeat": number} for number in (1, 2, 3, 4)]
    for row, ended in zip(rows, (30, 10, 20, None), strict=True):
        write(tmp_path, {**OK, "ended_ns": ended} if ended else None, VALID, row)
    shown = [line[2] for line in cells(result_table(tmp_path, rows, last=2)) if line[3] == "main"]
    assert shown == ["3", "1"]
    assert "not measured" not in result_table(tmp_path, rows, last=9)


def attempt(folder: Path, number: int = 1) -> Path:
    path = folder / f"cases/v/c/r1/attempts/{number:03d}"
    (path / "raw").mkdir(parents=True)
    raw = path / "raw" / "requests.jsonl"
    raw.write_text("{}\n")
    stat = raw.stat()
    facts = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": file_sha256(raw)}
    meta = {"schema": 1, "status": "ok", "token": 1, "spec_sha256": "x",
            "files": {"raw/requests.jsonl": facts}}  # fmt: skip
    (path / "meta.json").write_text(json.dumps(meta))
    return path


def test_damage_is_found_in_every_attempt(tmp_path: Path) -> None:
    first, second, third = (attempt(tmp_path, number) for number in (1, 2, 3))
    attempt(tmp_path, 4)
    assert damaged_files(tmp_path) == []
    (first / "raw/requests.jsonl").write_text("{ \n")
    (second / "raw/requests.jsonl").unlink()
    (third / "meta.json").write_text("{")
    assert damaged_files(tmp_path) == [
        f"{first}/raw/requests.jsonl: its sha256 is not the recorded one",
        f"{second}/raw/requests.jsonl: missing",
        f"{third}/meta.json: cannot be read",
    ]
    (third / "meta.json").write_text('{"schema": 9, "status": "ok"}')
    with pytest.raises(ResultsError, match="schema 9"):
        damaged_files(tmp_path)


def test_damage_is_found_in_captures(tmp_path: Path) -> None:
    folder = tmp_path / "captures/baseline/c"
    (folder / "n1").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / f"n1/{name}.json").write_text("{}")
    facts = {"sha256": file_sha256(folder / "n1/a.json")}
    record = {"schema": 1, "status": "ok", "files": {"n1/a.json": facts, "n1/b.json": facts}}
    (folder / "capture.json").write_text(json.dumps(record))
    assert damaged_files(tmp_path) == []
    (folder / "n1/a.json").unlink()
    (folder / "n1/b.json").write_text("other")
    assert damaged_files(tmp_path) == [
        f"{folder}/n1/a.json: missing",
        f"{folder}/n1/b.json: its sha256 is not the recorded one",
    ]
