import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servemap.cli import app
from servemap.entry import main
from tests.tracebuilder import event, kernel, launch, write

EVENTS: list[dict[str, Any]] = [
    event("user_annotation", "execute_context_1(9)_generation_0(0)", 0, 40),
    launch(1, 2, 1),
    launch(4, 2, 2),
    kernel("nvjet_tst", 10, 10, correlation=1),
    kernel("ncclDevKernel_AllReduce", 15, 15, correlation=2),
]


def run(*words: object) -> str:
    done = CliRunner().invoke(app, ["trace", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_table_is_printed_and_the_analysis_written(tmp_path: Path) -> None:
    traces = [write(tmp_path / f"{number}.json", EVENTS, rank=number) for number in (0, 1)]
    out = tmp_path / "deep" / "analysis.json"
    said = run(*traces, "--out", out)
    for word in ("profiled", "rank 0 of 2", "communication", "unmatched", "prefill", "exposed ms",
                 "straggler", "do graphs cover the decode batches", f"written: {out}"):  # fmt: skip
        assert word in said
    record = json.loads(out.read_text())
    assert (record["schema"], record["profiled"]) == (1, True)
    assert [one["file"]["rank"] for one in record["files"]] == [0, 1]
    device = record["files"][0]["devices"][0]["figures"]
    assert (device["busy_ns"], device["communication"]["exposed_ns"]) == (20_000, 10_000)
    assert len(record["questions"]) == 10
    assert record["across"]["matched"] == 1
    assert record["modules"] is None


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [*EVENTS, kernel("bad", 5, -1)])
    path.write_bytes(path.read_bytes()[:-30])
    said = run(path, "--out", tmp_path / "a.json")
    assert "not whole: the list of events does not end" in said


def test_a_timeline_puts_ranks_on_one_clock(tmp_path: Path) -> None:
    ahead = [{**one, "ts": one["ts"] + 500} for one in EVENTS]
    zero = write(tmp_path / "0.json", EVENTS, rank=0)
    one = write(tmp_path / "1.json", ahead, rank=1)
    run(zero, one, "--out", tmp_path / "a.json", "--timeline", tmp_path / "line.json")
    drawn = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    steps = [one for one in drawn if one["ph"] == "X" and one["name"].startswith("prefill")]
    assert [(step["pid"], step["ts"], step["dur"]) for step in steps] == [(0, 0, 40), (1, 0, 40)]
    names = {one["args"]["name"] for one in drawn if one["ph"] == "M"}
    assert names == {
        "rank 0",
        "rank 1",
        "steps",
        "device 0: gemm",
        "device 0: communication",
        "idle",
    }
    talk = [one for one in drawn if one["ph"] == "X" and one["name"] == "communication"]
    assert [(one["ts"], one["dur"]) for one in talk] == [(15, 15), (15, 15)]


def test_a_log_of_modules_is_told_beside_the_trace(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("decode.moe.routed_experts 540.24ms\nnothing\n")
    path = write(tmp_path / "t.json", EVENTS)
    lines = r"(?P<phase>\w+)\.(?P<module>\S+) (?P<total_ms>[\d.]+)ms"
    out = tmp_path / "a.json"
    said = run(path, "--out", out, "--module-log", log, "--module-lines", lines)
    assert "moe.routed_experts" in said and "540.2" in said
    [module] = json.loads(out.read_text())["modules"]["modules"]
    assert (module["phase"], module["class_id"], module["total_ns"]) == (
        "decode", "moe_experts", 540_240_000,
    )  # fmt: skip


def test_trace_starts_without_the_other_commands(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", EVENTS)
    script = (
        "import sys; from servemap.entry import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended\n"
        "heavy = {'servemap.cli', 'servemap.measure', 'pyarrow', 'plotly'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    words = ["trace", str(path), "--out", str(tmp_path / "a.json")]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "rank 0 of 2" in done.stdout


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["missing.json"], "No such file"),
        (["empty.json"], "the file is empty"),
        (["."], "directory"),
        (["good.json", "--out", "good.json"], "would overwrite a file"),
        (["good.json", "--out", "a.json", "--timeline", "./good.json"], "would overwrite a file"),
        (["good.json", "--out", "same.json", "--experts", "same.json"], "would overwrite a file"),
        (["good.json", "--out", "same.json", "--module-log", "same.json"], "overwrite a file"),
        (["good.json", "--timeline", "analysis.json"], "would overwrite the analysis"),
        (["good.json", "--module-log", "empty.json"], "belong together"),
        (["good.json", "--module-log", "empty.json", "--module-lines", "("], "no regular expr"),
        (["good.json", "same.json"], "both are rank 0"),
    ],
)
def test_bad_input_is_refused_in_words(
    words: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("good.json"), EVENTS)
    write(Path("same.json"), EVENTS)
    Path("empty.json").write_text("")
    before = Path("good.json").read_bytes()
    monkeypatch.setattr("sys.argv", ["servemap", "trace", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert what in str(ended.value)
    assert Path("good.json").read_bytes() == before
    assert not Path("analysis.json").exists()
