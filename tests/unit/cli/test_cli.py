"""The command `servemap`: every command, and every error in words."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from servemap import __version__, cli, entry
from servemap.cli_noise import measured_cvs, noise_lines
from servemap.cli_show import (
    baseline_table,
    duration,
    left_lines,
    plan_summary,
    plan_table,
    status_lines,
    unfinished,
)
from servemap.measure.baseline_status import PlannedBaseline
from servemap.measure.record import close_attempt, open_attempt
from servemap.measure.setup import load_context
from servemap.measure.status import Live, PlannedLaunch, PlannedRepeat
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError, NodeError, ResultsError
from servemap.model.plan import PhaseItems
from servemap.model.resolve import _source_digest
from servemap.nodes.identity import identify
from servemap.server.context import Context
from servemap.server.hold.leftover import LeftServer, NotAsked
from servemap.server.hold.manifest import check_manifest, write_manifest
from servemap.server.locks import describe_self
from servemap.server.stop import stop_request
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A run with a manifest, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    context = fake_context(FakeNode(), campaign())
    write_manifest(context.run_dir, context.plan.campaign, {"session": "s1"})
    return context


def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str
) -> tuple[int, str]:
    """Call the command as from a shell; return its exit code and all it said."""
    monkeypatch.setattr(sys, "argv", ["servemap", *args])
    try:
        entry.main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            code = 1
        else:
            code = end.code or 0
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out + err


@pytest.fixture
def servemap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, context: Context
) -> Any:
    return lambda *args: call(capsys, monkeypatch, *args)


def measured(context: Context, status: str = "ok", verdict: str = "valid") -> Path:
    folder = context.run_dir / "cases/baseline/c/r1"
    attempt = open_attempt(folder, {})
    (attempt.raw / "requests.jsonl").write_text("{}\n")
    sha256 = context.plan.spec_sha256("case", "baseline", "c")
    meta = close_attempt(
        attempt,
        {"status": status, "token": 1, "spec_sha256": sha256, "reasons": ["why"] * (status != "ok"),
         "variant": "baseline", "case": "c", "repeat": 1, "run": "r"},
    )  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta))
    metrics = {"attempt": 1, "verdict": verdict, "reasons": [] if verdict == "valid" else ["bad"],
               "segments": [{"name": "main", "metrics": {"ttft_s": {"p50": 0.25}}}]}  # fmt: skip
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_plan(servemap: Any, context: Context) -> None:
    Path("c.yaml").write_text(yaml.safe_dump(campaign()))
    code, said = servemap("plan", "--configfile", "c.yaml")
    assert code == 0
    assert "repeats: 2 planned, 0 need nothing, 2 to measure with 2 server starts" in said
    assert "variant few: launch missing, on n1" in said
    assert "baselines: 1 planned, 0 need nothing, 1 to measure" in said
    assert "baseline net: round trips (up to 10) and bandwidth of TCP between a node" in said
    measured(context)
    code, said = servemap("plan", "phase1", "--configfile", "c.yaml")
    assert "1 need nothing" in said
    assert "no Snakemake metadata" in said


def test_a_plan_tells_of_the_patch_whose_source_is_not_here(servemap: Any) -> None:
    patch = {"id": "mine", "source": "mine.py", "target": "/e/m.py", "root": "/e"}
    given = campaign(server={**campaign()["server"], "patches": [patch]})
    Path("c.yaml").write_text(yaml.safe_dump(given))
    said = "patch mine: mine.py is not here"
    _source_digest.cache_clear()
    assert said in servemap("plan", "--configfile", "c.yaml")[1]
    Path("mine.py").write_text("x = 1\n")
    _source_digest.cache_clear()
    assert said not in servemap("plan", "--configfile", "c.yaml")[1]


def test_plan_says_that_a_warmup_is_expensive(servemap: Any) -> None:
    case = {"id": "c", "isl": "32K", "osl": 1, "concurrency": 2, "warmup": "same"}
    model = {"name": "m", "path": "m.gguf", "context": 65536}
    Path("c.yaml").write_text(yaml.safe_dump(campaign(run="other", cases=[case], model=model)))
    said = servemap("plan", "--configfile", "c.yaml")[1]
    assert said.count("its warm-up (same) sends 2 prompts of 32768 tokens") == 1


def test_plan_of_a_profile(servemap: Any) -> None:
    Path("c.yaml").write_text(yaml.safe_dump(campaign()))
    Path("site").mkdir()
    for given in ("c.yaml", ["c.yaml"]):
        Path("site/profile.yaml").write_text(yaml.safe_dump({"configfile": given}))
        assert servemap("plan", "--profile", "site")[0] == 0
    Path("site/profile.yaml").write_text("cores: 1\n")
    code, said = servemap("plan", "--profile", "site")
    assert (code, "config/config.yaml" in said) == (1, True)


def test_where_a_profile_lies(servemap: Any) -> None:
    Path("c.yaml").write_text(yaml.safe_dump(campaign()))
    folder = Path("profiles/site")
    folder.mkdir(parents=True)
    (folder / "config.v8+.yaml").write_text("configfile: none.yaml\n")
    assert "none.yaml" in servemap("plan", "--profile", "site")[1]
    (folder / "profile.v9+.yaml").write_text("configfile: c.yaml\n")
    (folder / "profile.yaml").write_text("configfile: none.yaml\n")
    for given in ("site", "profiles/site", "profiles/site/profile.v9+.yaml"):
        assert servemap("plan", "--profile", given)[0] == 0
    Path("site").symlink_to("profiles/site")
    assert servemap("plan", "--profile", "site")[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plan", "--configfile", "none.yaml"], "cannot read the file"),
        (["plan", "phase9", "--configfile", "c.yaml"], "there is no phase 'phase9'"),
        (["plan", "--profile", "nowhere"], "nowhere/profile.yaml"),
        (["status", "other"], "there is no run 'other'"),
        (["table", "other"], "there is no run 'other'"),
        (["gate", "other"], "there is no run 'other'"),
        (["verify", "other"], "there is no run 'other'"),
        (["report", "other"], "there is no run 'other'"),
        (["finish", "other"], "there is no run 'other'"),
        (["stop", "other"], "there is no run 'other'"),
        (["stop", "r", "--after-case", "--reason", "x"], "is not running"),
        (["embedded", "c.yaml/below"], "remedy"),
    ],
)
def test_errors_in_words(servemap: Any, args: list[str], said: str) -> None:
    Path("c.yaml").write_text(yaml.safe_dump(campaign()))
    code, text = servemap(*args)
    assert code == 1
    assert text.startswith("error: ")
    assert said in text
    assert "remedy:" in text


def test_without_any_run(servemap: Any, context: Context) -> None:
    (context.run_dir / "run_manifest.json").unlink()
    code, said = servemap("status")
    assert (code, "there is no run yet" in said) == (1, True)


@pytest.mark.parametrize("text", ["{", "{}", '{"campaign": {"run": "r"}}'])
def test_a_manifest_that_cannot_be_used(servemap: Any, context: Context, text: str) -> None:
    (context.run_dir / "run_manifest.json").write_text(text)
    for command in ("status", "table", "gate"):
        code, said = servemap(command)
        assert (code, said[:7]) == (1, "error: ")


def test_status_and_stop(servemap: Any, context: Context) -> None:
    code, said = servemap("status")
    assert (code, "not running" in said) == (0, True)
    session = describe_self(session="s9")
    (context.run_dir / ".session.json").write_text(json.dumps(session))
    code, said = servemap("status")
    assert f"running, pid {session['pid']}" in said
    assert "repeats: 0 done, 2 left, 2 planned" in said
    for args in (["--after-case"], ["--reason", "x"], []):
        code, said = servemap("stop", "r", *args)
        assert code == 1
        assert "stop needs --after-case and --reason" in said
    assert stop_request(context.run_dir, "s9") is None
    code, said = servemap("stop", "--after-case", "--reason", "lunch")
    assert code == 0
    found = stop_request(context.run_dir, "s9")
    assert found is not None
    assert (found.cause, found.reason) == ("stop", "stopped by a person: lunch")
    assert "asked to stop after this case" in servemap("status")[1]


def test_table_gate_verify(servemap: Any, context: Context) -> None:
    folder = measured(context)
    code, said = servemap("table")
    assert code == 0
    assert "250" in said, "TTFT in ms"
    assert "not measured" in said
    code, said = servemap("gate")
    lines = ["fails the gate: baseline net: not measured", "fails the gate: few/c r1: not measured"]
    assert (code, said.splitlines()) == (1, lines)
    assert servemap("verify") == (0, "every raw file is as it was recorded\n")
    (folder / "attempts/001/raw/requests.jsonl").write_text("[]\n")
    code, said = servemap("verify")
    assert (code, "its sha256 is not the recorded one" in said) == (1, True)


def test_figures_of_another_spec_are_marked(servemap: Any, context: Context) -> None:
    measured(context)
    cases = [{"id": "c", "isl": 65, "osl": 8, "concurrency": 1}]
    changed = fake_context(FakeNode(), campaign(cases=cases))
    write_manifest(context.run_dir, changed.plan.campaign, {"session": "s2"})
    for command in ("status", "table"):
        said = servemap(command)[1]
        assert "changed, is measured again" in said
        assert "250" not in said
    assert "0 of 2 repeats are valid" in said


def test_report_and_finish(servemap: Any, context: Context) -> None:
    measured(context)
    code, said = servemap("finish", "r")
    assert code == 0
    assert "1 of 2 planned repeats are still to be measured; so far: results/r/report/" in said
    report = context.run_dir / "report"
    assert (report / "partial.html").exists()
    assert not (report / "index.html").exists(), "never a declared output"
    assert servemap("report")[0] == 0
    assert (report / "index.html").exists()
    assert servemap("finish", "r")[0] == 0
    assert not list(report.glob("partial.*")), "the whole report replaces the partial one"
    attempt = next(context.run_dir.glob("cases/*/*/r*/attempts/*/meta.json"))
    (attempt.parents[2] / "meta.json").unlink()
    later = report.joinpath("index.html").stat().st_mtime + 1
    os.utime(attempt, (later, later))
    code, said = servemap("finish", "r")
    assert code == 0
    assert said.endswith("; report.md and report/index.html are older\n")
    assert (report / "partial.html").exists(), "an interrupted repeat makes the old report stale"
    for name in ("partial.md", "partial.html"):
        assert "are older, of " in (report / name).read_text()
    assert "report so far: results/r/report/partial.html" in servemap("table")[1]
    assert servemap("report")[0] == 0
    assert not list(report.glob("partial.*"))
    assert "report: results/r/report/index.html" in servemap("table")[1]


def test_records_of_former_figure_names_are_read(servemap: Any, context: Context) -> None:
    measured(context)
    path = context.run_dir / "run_manifest.json"
    manifest = json.loads(path.read_text())
    manifest["campaign"]["targets"] = [
        {"target": "total_tps >= 1", "cases": [], "gate": True},
        "agg_input_tps >= 1e9",
    ]
    path.write_text(json.dumps(manifest))
    code, said = servemap("gate")
    assert code == 1
    assert "target input_tok_s >= 1e9: not measured in baseline/c r1" in said
    assert "target total_tok_s >= 1: " in said


def test_a_record_without_a_reason_has_a_line(servemap: Any, context: Context) -> None:
    measured(context)
    path = next(context.run_dir.glob("cases/*/*/r*/meta.json"))
    for text in ("{}", '{"status": "failed", "reasons": []}', '{"status": "failed", "reasons": 3}'):
        path.write_text(text)
        code, said = servemap("table", "r")
        assert (code, "damaged, is measured again" in said) == (0, True)
        code, said = servemap("gate", "r")
        assert (code, "baseline/c r1: " in said) == (1, True)


def test_a_report_that_is_only_stale_is_called_so(servemap: Any, context: Context) -> None:
    phases = [{"id": "phase1", "cases": ["c"], "variants": ["baseline"]}]
    whole = fake_context(FakeNode(), campaign(phases=phases))
    write_manifest(context.run_dir, whole.plan.campaign, {"session": "s2"})
    measured(context)
    assert servemap("report")[0] == 0
    meta = measured(context) / "meta.json"
    os.utime(meta, (meta.stat().st_mtime + 10,) * 2)
    said = servemap("finish", "r")[1]
    assert said.startswith("the report is older than the newest repeat: `snakemake --cores all`")


def test_the_load_client_alone(servemap: Any) -> None:
    code, said = servemap("bench", "--help")
    assert code == 0
    assert "--url" in said
    assert servemap("bench", "--url", "nonsense")[0] != 0


def test_a_script_that_is_not_there(servemap: Any) -> None:
    with pytest.raises(ConfigError) as error:
        CliRunner().invoke(
            cli.app, ["reference-server", "--script", "none", "--log", "l"], catch_exceptions=False
        )
    assert error.value.where == "none"
    assert error.value.remedy.startswith("give --script the path of a script")


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "servemap", "status"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no run yet")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (4.25, "4.2 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"),
     (3900, "1 h 05 min")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


ROWS = [
    PlannedRepeat("v", "a", 1, "done", 1, 10, True, ),
    PlannedRepeat("v", "b", 1, "gave_up", 2, 60, False),
    PlannedRepeat("w", "a", 1, "missing", 0, 20, True),
    PlannedRepeat("w", "b", 1, "failed", 1, 60, False),
]  # fmt: skip


def test_what_a_plan_says() -> None:
    table = plan_table(ROWS)
    assert "failed, given up (force with -f)" in table
    assert "1 min 00 s (guess)" in table
    items = PhaseItems(["net"], [(r.variant, r.case, r.repeat) for r in ROWS], [("v", "a")])
    launches = {"v": PlannedLaunch("done", 5.0), "w": PlannedLaunch("missing", 7.0)}
    summary = plan_summary(items, ROWS, launches, {"v": ["n1"], "w": ["n1", "n2"]})
    assert "2 to measure with 1 server starts" in summary
    assert "expected: 1 min 27 s (1 of 2 repeats are guesses)" in summary
    assert "variant w: launch missing, on n1, n2" in summary


def test_a_plan_counts_the_time_of_the_baselines_that_it_will_measure() -> None:
    baselines = [
        PlannedBaseline("net", "tcp", "done", 1, 5.0, True),
        PlannedBaseline("cards", "copies", "missing", 0, 30.0, False),
        PlannedBaseline("sweep", "collective", "failed", 1, 40.0, True),
        PlannedBaseline("old", "tcp", "gave_up", 2, 7.0, False),
    ]
    items = PhaseItems([one.name for one in baselines])
    summary = plan_summary(items, [], {}, {}, baselines=baselines)
    assert "baselines: 4 planned, 2 need nothing, 2 to measure" in summary
    assert "expected: 1 min 10 s" in summary
    assert "baselines: none" in plan_summary(PhaseItems(), [], {}, {})
    lines = baseline_table(baselines).splitlines()
    assert lines[3].split() == ["cards", "copies", "missing", "0", "30.0", "s", "(guess)"]
    assert "failed, is tried again" in lines[4]


def test_a_round_on_a_start_of_its_own_is_counted_as_a_start() -> None:
    rows = [PlannedRepeat("v", "a", k, "missing", 0, 10, True) for k in (1, 2, 3)]
    items = PhaseItems([], [(r.variant, r.case, r.repeat) for r in rows], [])
    launches = {"v": PlannedLaunch("missing", 60.0)}
    summary = plan_summary(items, rows, launches, {"v": ["n1"]}, "relaunched")
    assert "3 to measure with 3 server starts" in summary
    assert "expected: 3 min 30 s" in summary
    assert "with 1 server starts" in plan_summary(items, rows, launches, {"v": ["n1"]})


def test_a_plan_says_which_changes_its_repeats_can_show(tmp_path: Path) -> None:
    repeats = [("v", "a", 1), *[("v", case, k) for case in ("b", "c", "d") for k in (1, 2, 3)]]
    said = noise_lines("interleaved", repeats, 0.03, {}).splitlines()
    assert said[0].startswith("order of repeats: interleaved: r1 of all cases, then r2")
    assert said[1:] == [
        "noise, 1 case of 1 repeat: no noise floor, no change can be resolved",
        "noise, 3 cases of 3 repeats: no change below 9.2 % can be resolved at an assumed CV of "
        "3 % (two-sided 5 %, power 80 %)",
    ]
    table = tmp_path / "aggregate.csv"
    table.write_text(
        "variant,case,lengths,agg_output_tps_cv\n"
        "v,a,planned,0.5\nv,b,planned,0.01\nv,c,planned,0.05\nv,d,fallback,0.9\nv,d,planned,\n"
        "v,d,planned,x\nv,d,planned,nan\n"
    )
    measured = measured_cvs(table)
    assert measured == {("v", "a"): 0.5, ("v", "b"): 0.01, ("v", "c"): 0.05}
    said = noise_lines("interleaved", repeats, 0.03, measured).splitlines()
    assert said[-1] == (
        "  as measured, output tok/s: below 9.2 % at CV 3.0 % (median), 15.4 % at CV 5.0 % (v/c)"
    )
    assert noise_lines("blocked", [], 0.03, {}) == ""


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"a,b\n1"])
def test_no_cv_from_a_table_that_is_missing_or_damaged(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "aggregate.csv").write_bytes(content)
    assert measured_cvs(tmp_path / "aggregate.csv") == {}


def test_a_plan_says_what_is_done_but_invalid() -> None:
    rows = [PlannedRepeat("v", "a", 1, "done", 1, 10, True, True), ROWS[2]]
    assert "done, but invalid (measure again with -f)" in plan_table(rows)
    items = PhaseItems([], [(r.variant, r.case, r.repeat) for r in rows], [])
    launches = {"v": PlannedLaunch("done", 5.0), "w": PlannedLaunch("missing", 7.0)}
    summary = plan_summary(items, rows, launches, {"v": ["n1"], "w": ["n1"]})
    assert "1 need nothing (1 of them invalid), 1 to measure" in summary
    idle = status_lines(Live(False, {}, None, None, None), rows)
    assert "repeats: 1 done (1 invalid), 1 left, 2 planned" in idle


def test_a_plan_with_an_attached_server_has_no_starts() -> None:
    items = PhaseItems([], [(r.variant, r.case, r.repeat) for r in ROWS], [])
    launches = {name: PlannedLaunch("missing", 0.0, attached=True) for name in "vw"}
    summary = plan_summary(items, ROWS, launches, {"v": ["n1"], "w": ["n1"]})
    assert "variant w: attached, never started" in summary
    assert "server starts" not in summary
    assert "expected: 1 min 20 s" in summary


def test_why_a_report_is_not_whole() -> None:
    assert unfinished(3, 8, True) == "3 of 8 planned repeats are still to be measured"
    assert unfinished(0, 8, True).startswith("the report is older than the newest repeat: `snake")
    assert unfinished(0, 8, False).startswith("there is no report yet: `snakemake")


def test_a_launch_for_captures_alone_is_a_server_start() -> None:
    launches = {"v": PlannedLaunch("missing", 5.0)}
    summary = plan_summary(PhaseItems([], [], [("v", "a")]), [], launches, {"v": ["n1"]})
    assert "0 to measure with 1 server starts" in summary
    assert "expected: 5.0 s" in summary


def test_what_a_dead_controller_left() -> None:
    left = [LeftServer("n1", "few", "b1", 41, 0), NotAsked("n2", "no route to host")]
    first, second = left_lines(left, 90 * 10**9).splitlines()
    assert first.startswith(
        "node n1: the server of few still runs, pid 41, for 1 min 30 s (boot b1)"
    )
    assert second == "node n2: what runs there is not known: no route to host"
    assert left_lines([], 0) == ""


def test_status_asks_the_nodes_only_where_no_controller_runs(
    servemap: Any, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [LeftServer("n1", "few", "b1", 41, 0)]
    monkeypatch.setattr(cli, "left_running", lambda asked: left)
    assert "the server of few still runs, pid 41" in servemap("status")[1]
    (context.run_dir / ".session.json").write_text(json.dumps(describe_self(session="s9")))
    assert "still runs" not in servemap("status")[1]


def test_what_a_status_says() -> None:
    running = Live(True, {"pid": 4}, "case w/a r1", 3.0, "lunch")
    said = status_lines(running, ROWS)
    assert "now: case w/a r1, for 3.0 s" in said
    assert "repeats: 1 done, 2 left, 4 planned" in said
    assert "given up: v/b" in said
    assert "expected to end in 1 min 20 s" in said
    assert "lunch" in said
    idle = status_lines(Live(False, {}, None, None, None), ROWS)
    assert idle.startswith("not running")
    assert "expected to end" not in idle


def test_plan_refuses_a_run_of_other_nodes_with_the_words_of_a_real_run(
    servemap: Any, context: Context
) -> None:
    nodes = [{"id": "n1", "role": "head", "address": "10.0.0.9"}]
    Path("c.yaml").write_text(yaml.safe_dump(campaign(nodes=nodes)))
    with pytest.raises(ResultsError) as refused:
        check_manifest(context.run_dir, load_context(campaign(nodes=nodes)).plan.campaign)
    assert servemap("plan", "--configfile", "c.yaml") == (1, f"error: {refused.value}\n")


@pytest.mark.parametrize("options", [[], ["--partial"]])
def test_the_report_tells_of_milestones(servemap: Any, options: list[str]) -> None:
    phases = [{"id": "m1", "cases": ["c"], "variants": ["baseline"], "milestone": True}]
    context = fake_context(FakeNode(), campaign(run="agree", phases=phases))
    write_manifest(context.run_dir, context.plan.campaign, {"session": "s1"})
    code, said = servemap("report", "agree", *options)
    assert code == 0, said
    written = context.run_dir / ("report/partial.md" if options else "report.md")
    assert "Milestones missed: m1 missed in 1 of 1 cases" in written.read_text()
    assert "missed (0 of 3 valid repeats)" in written.read_text()


def test_gate_and_status_tell_of_baselines(servemap: Any, context: Context) -> None:
    record = context.run_dir / "baselines/net.json"
    assert "baselines: 0 of 1 measured\nbaseline net: not measured" in servemap("status")[1]
    reason = str(NodeError("no route to host", "n1 to n2", "see to the firewall"))
    write_json_atomic(record, {"status": "failed", "reasons": [reason]})
    wanted = "baseline net: failed: no route to host (n1 to n2); to do: see to the firewall"
    assert f"fails the gate: {wanted}" in servemap("gate")[1].splitlines()
    write_json_atomic(record, {"status": "ok", "reasons": []})
    code, said = servemap("gate")
    assert (code, "baseline net" in said) == (1, False)
    assert "baselines: 1 of 1 measured" in servemap("status")[1]


def test_status_names_the_load_that_a_dead_controller_left(servemap: Any, context: Context) -> None:
    attempt = open_attempt(context.run_dir / "cases/baseline/c/r1", {})
    with subprocess.Popen(["sleep", "60"]) as client:
        try:
            process = identify(client.pid)
            assert process is not None
            attempt.note({"client": asdict(process)})
            said = servemap("status")[1]
        finally:
            client.kill()
    assert (
        f"node n1: the load client of baseline/c/r1/attempts/001: pid {client.pid} still runs; "
        "`snakemake` takes it up again" in said
    )
    assert "the load client" not in servemap("status")[1]


@pytest.mark.parametrize("words", [("--version",), ("--version", "plan")])
def test_it_says_its_version(servemap: Any, words: tuple[str, ...]) -> None:
    assert servemap(*words) == (0, f"servemap {__version__}\n")
