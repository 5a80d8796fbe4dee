"""What stands on disk, what a campaign is doing, and the line of progress per job."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.measure.job import Job
from servemap.measure.progress import case_line
from servemap.measure.record import close_attempt, open_attempt
from servemap.measure.status import (
    expected_start_s,
    launch_state,
    live,
    planned_launch,
    planned_repeats,
    without_metadata,
)
from servemap.model.attempts import keep_record
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.locks import describe_self, server_lock
from servemap.server.stop import request_stop
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.chdir(tmp_path)
    return fake_context(FakeNode(), campaign())


def measured(context: Context, status: str = "ok", **keys: Any) -> Path:
    folder = context.run_dir / "cases/baseline/c/r1"
    sha256 = context.plan.spec_sha256("case", "baseline", "c")
    facts = {"status": status, "token": 1, "spec_sha256": sha256, "reasons": [], **keys}
    meta = close_attempt(open_attempt(folder, {}), facts)
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def states(context: Context, *phases: str) -> list[str]:
    return [row.state for row in planned_repeats(context, *phases)]


def test_states_of_planned_repeats(context: Context) -> None:
    assert states(context) == ["missing", "missing"]
    folder = measured(context)
    assert states(context) == ["done", "missing"]
    (folder / "meta.json").unlink()
    assert states(context) == ["missing", "missing"], "Snakemake measures it again, so we say so"
    measured(context, "failed")
    measured(context, "failed")
    assert states(context)[0] == "gave_up"
    assert not planned_repeats(context)[0].runs


def test_expected_durations_are_those_of_the_past(context: Context) -> None:
    row = planned_repeats(context)[0]
    assert (row.expected_s, row.measured) == (60.0, False)
    append_event(context.run_dir, "case_start", variant="baseline", case="c", repeat=1)
    append_event(context.run_dir, "case_end", variant="baseline", case="c", repeat=1, status="ok")
    with (context.run_dir / "events.jsonl").open("a") as handle:
        handle.write('{"t_ns": 1}\n')
    row = planned_repeats(context)[0]
    assert row.measured
    assert 0 < row.expected_s < 60


def test_a_repeat_that_is_done_may_be_invalid(context: Context) -> None:
    folder = measured(context)
    assert [row.invalid for row in planned_repeats(context)] == [False, False]
    (folder / "metrics.json").write_text('{"attempt": 1, "verdict": "invalid"}')
    assert [row.invalid for row in planned_repeats(context)] == [True, False]
    measured(context)
    assert not planned_repeats(context)[0].invalid, "the figures are of an older attempt"


def test_durations_that_are_guessed(context: Context) -> None:
    cases = [
        {"id": "a", "isl": 64, "osl": 8, "concurrency": 1, "min_window_s": 4},
        {"id": "b", "kind": "mixed", "inject": {"isl": 64, "osl": 1, "after_s": 1},
         "background": {"isl": 64, "osl": 8, "concurrency": 1, "min_window_s": 5}},
        {"id": "c", "isl": 64, "osl": 8, "concurrency": 1},
        {"id": "d", "isl": 64, "osl": 8, "concurrency": 1, "min_window_s": 4, "expected_s": 30},
    ]  # fmt: skip
    phases = [{"id": "phase1", "cases": ["a", "b", "c", "d"], "variants": ["baseline"]}]
    context = fake_context(FakeNode(), campaign(cases=cases, phases=phases))
    assert [row.expected_s for row in planned_repeats(context)] == [6, 12, 12, 30]
    with (context.run_dir / "events.jsonl").open("a") as handle:
        for t_ns, event in ((0, "case_start"), (50_000_000_000, "case_end")):
            facts = {"variant": "baseline", "case": "a", "repeat": 1, "status": "ok"}
            handle.write(json.dumps({"t_ns": t_ns, "event": event, **facts}) + "\n")
    rows = planned_repeats(context)
    assert [row.expected_s for row in rows] == [50, 12, 50, 30]
    assert [row.measured for row in rows] == [True, False, False, False]


def test_a_search_is_no_guess_for_other_cases(context: Context) -> None:
    cases = [
        {"id": "a", "isl": 64, "osl": 8, "concurrency": 4, "num_prompts": 16},
        {"id": "s", "kind": "search", "isl": 64, "osl": 8, "most": 64, "max_s": 1800,
         "slo": {"ttft_s": 1}},
    ]  # fmt: skip
    phases = [{"id": "phase1", "cases": ["a", "s"], "variants": ["baseline"]}]
    context = fake_context(FakeNode(), campaign(cases=cases, phases=phases))
    assert [row.expected_s for row in planned_repeats(context)] == [60, 1800]
    with (context.run_dir / "events.jsonl").open("a") as handle:
        for t_ns, event in ((0, "case_start"), (900_000_000_000, "case_end")):
            facts = {"variant": "baseline", "case": "s", "repeat": 1, "status": "ok"}
            handle.write(json.dumps({"t_ns": t_ns, "event": event, **facts}) + "\n")
    assert [row.expected_s for row in planned_repeats(context)] == [60, 900]


def test_an_attached_server_costs_no_start(context: Context) -> None:
    server = {"engine": "vllm", "attach": "http://10.0.0.9:8000"}
    other = fake_context(
        FakeNode(), campaign(server=server, variables=[], variants=[{"id": "as-it-is"}])
    )
    launch = planned_launch(other, "as-it-is")
    assert (launch.attached, launch.expected_s) == (True, 0)
    assert not planned_launch(context, "baseline").attached


def test_launches(context: Context) -> None:
    assert launch_state(context, "baseline") == "missing"
    assert expected_start_s(context, "baseline") == 10
    sha256 = context.plan.spec_sha256("launch", "baseline")
    folder = context.run_dir / "server/baseline"
    keep_record(
        folder / "launches", {"schema": 1, "status": "ok", "token": 1, "spec_sha256": sha256}
    )
    launch = {"schema": 1, "status": "ok", "token": 1, "spec_sha256": sha256, "start_s": 4.5}
    (folder / "launch.json").write_text(json.dumps(launch))
    assert launch_state(context, "baseline") == "done"
    assert expected_start_s(context, "baseline") == 4.5
    assert expected_start_s(context, "few") == 4.5, "as long as another variant took"
    (folder / "launch.json").write_text('{"start_s": null}')
    assert expected_start_s(context, "baseline") == 10
    server = {"engine": "vllm"}
    real = fake_context(FakeNode(), campaign(server=server, variables=[], variants=[{"id": "v"}]))
    assert expected_start_s(real, "v") == 60


def test_a_campaign_that_runs_and_one_that_does_not(context: Context) -> None:
    assert not live(context).running
    session = describe_self(session="s2")
    (context.run_dir / ".session.json").write_text(json.dumps(session))
    assert live(context).running
    assert live(context).current is None
    with server_lock(context.run_dir, "case baseline/c r1"):
        now = live(context)
        assert now.current == "case baseline/c r1"
        assert now.current_s is not None
    request_stop(context.run_dir, "s1", "stop", "old")
    assert live(context).stop_reason is None
    request_stop(context.run_dir, "s2", "stop", "lunch")
    assert live(context).stop_reason == "lunch"
    session_path = context.run_dir / ".session.json"
    session_path.write_text(json.dumps({**session, "start": 1}))
    assert live(context).stop_reason is None, "a run that ended is not about to stop"
    (context.run_dir / ".session.json").write_text(json.dumps({**session, "start": 1}))
    assert not live(context).running


def test_results_without_snakemakes_metadata(context: Context) -> None:
    assert not without_metadata(context)
    measured(context)
    assert without_metadata(context)
    Path(".snakemake/metadata").mkdir(parents=True)
    assert without_metadata(context)
    (Path(".snakemake/metadata") / "x").touch()
    assert not without_metadata(context)


def test_lines_of_progress(context: Context) -> None:
    meta = {
        "status": "ok", "reasons": [], "counts": {"ok": 3, "planned": 4},
        "segments": [{"start_ns": 0, "end_ns": 2_000_000_000}],
    }  # fmt: skip
    line = case_line(context.plan, Job("few", "c", 1, 1), meta)
    assert line == "[2/2] few/c r1: ok, 3/4 requests, window 2.0 s"
    failed = {"status": "not_run", "counts": None, "segments": [],
              "reasons": ["why\n  where: n1:/srv\n  remedy: mend it", "other"]}  # fmt: skip
    assert case_line(context.plan, Job("baseline", "c", 1, 1), failed) == (
        "[1/2] baseline/c r1: not_run: why (n1:/srv); to do: mend it"
    )


def test_a_repeat_that_no_phase_has_can_be_run_by_its_path(context: Context) -> None:
    meta = {"status": "ok", "reasons": [], "counts": None, "segments": []}
    assert case_line(context.plan, Job("few", "c", 9, 1), meta) == "[-/2] few/c r9: ok"
    assert context.plan.priority("case", "few", "c", "9") == 0
    assert context.plan.priority("case", "few", "c", "1") > 0


def test_phases_with_only_baselines_or_only_captures(context: Context) -> None:
    for phase in ({"baselines": ["net"]}, {"captures": [{"case": "c"}]}):
        other = fake_context(FakeNode(), campaign(phases=[{"id": "phase1", **phase}]))
        assert planned_repeats(other) == []
        items = other.plan.items("phase1")
        assert items.variants == ([] if "baselines" in phase else ["baseline", "few"])
