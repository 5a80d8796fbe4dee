"""Change one thing, assert exactly which jobs run (design.md, Lifecycle)."""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.workflow.harness import ROOT, Project, Run

REPORT = Counter({"summary": 1, "snapshot": 1, "report": 1})
DECODE = ["decode/r1", "decode/r2"]


def expect(run: Run, jobs: dict[str, int], cases: list[str] | None = None) -> None:
    assert run.code == 0, run.text[-3000:]
    assert run.jobs == Counter(jobs), run.text[-3000:]
    if cases is not None:
        assert run.cases == cases


def test_nothing_changed(done: Project) -> None:
    run = done.snakemake()
    assert run.nothing
    expect(run, {})


def test_fresh_campaign_runs_each_job_once_in_the_planned_order(finished: Project) -> None:
    events = [
        json.loads(line) for line in (finished.results / "events.jsonl").read_text().splitlines()
    ]
    order = [
        (e["event"], e.get("variant"), e.get("case"), e.get("repeat"))
        for e in events
        if e["event"] in ("launch", "case_start")
    ]
    assert order == [
        ("launch", "baseline", None, None),
        ("case_start", "baseline", "prefill", 1),
        ("case_start", "baseline", "decode", 1),
        ("case_start", "baseline", "decode", 2),
        ("launch", "few-slots", None, None),
        ("case_start", "few-slots", "prefill", 1),
        ("case_start", "few-slots", "decode", 1),
        ("case_start", "few-slots", "decode", 2),
    ]


def test_nothing_of_ours_runs_beside_a_measuring_job(finished: Project) -> None:
    """Where the controller is measured, measuring jobs take all cores and the one server."""
    text = (finished.folder / "first-run.log").read_text()
    blocks = re.findall(r"^(?:local)?rule (\w+):\n(.*?)(?=^\[|^Execute)", text, flags=re.M | re.S)
    measuring = [body for rule, body in blocks if rule in ("launch", "case", "baseline", "patch")]
    assert len(measuring) == 2 + 6 + 1 + 2
    for body in measuring:
        assert "threads: 2" in body
        assert "server=1" in body


def test_the_workflow_uses_none_of_the_directives_that_were_tried_and_rejected() -> None:
    """Each of them lost results or measured again what was done (design.md, Lifecycle 12)."""
    rules = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    for path in rules:
        code = "\n".join(
            line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")
        )
        found = re.findall(
            r"\b(service|temp|ancient|protected)\(|^\s*(group|run|checkpoint)\b.*:$",
            code,
            flags=re.M,
        )
        assert not found, f"{path.name}: {found}"


def test_one_case_changed(done: Project) -> None:
    campaign = done.campaign()
    campaign["cases"][0]["isl"] = "9K"
    done.write_campaign(campaign)
    expect(
        done.snakemake(),
        {"case": 2, "derive": 2, **REPORT},
        ["baseline/prefill/r1", "few-slots/prefill/r1"],
    )
    assert done.snakemake().nothing


def test_searches_and_curves(done: Project) -> None:
    """A search is one job, a curve one a point; a changed bound and a new level run just those."""
    campaign = done.campaign()
    shape = {"isl": "1K", "osl": 2, "num_prompts": 2}
    search = {"id": "most", "kind": "search", **shape, "most": 2, "slo": {"e2e_s": 100}}
    curve = {"id": "curve", "kind": "curve", **shape, "concurrencies": [1, 2]}
    campaign["cases"] += [search, curve]
    phase = {"id": "phase3", "variants": ["baseline"], "cases": ["most", "curve"]}
    campaign["phases"].append(phase)
    done.write_campaign(campaign)
    expect(
        done.snakemake(),
        {"case": 3, "derive": 3, **REPORT},
        ["baseline/most/r1", "baseline/curve-c1/r1", "baseline/curve-c2/r1"],
    )
    assert done.snakemake().nothing
    meta = json.loads((done.results / "cases/baseline/most/r1/meta.json").read_text())
    assert (meta["status"], meta["search"]["ended"]) == ("ok", "most")
    search["most"] = 1
    curve["concurrencies"] = [1, 2, 3]
    done.write_campaign(campaign)
    expect(
        done.snakemake(),
        {"case": 2, "derive": 2, **REPORT},
        ["baseline/most/r1", "baseline/curve-c3/r1"],
    )


def test_planning_keys_change_nothing(done: Project) -> None:
    campaign = done.campaign()
    campaign["cases"][0]["expected_s"] = 3
    campaign["title"] = "another title"
    campaign["policy"]["lease_ttl_s"] = 30
    done.write_campaign(campaign)
    assert done.snakemake().nothing


def test_key_order_changes_nothing(done: Project) -> None:
    campaign = done.campaign()
    campaign["cases"] = [dict(reversed(case.items())) for case in campaign["cases"]]
    done.write_campaign(dict(reversed(campaign.items())))
    assert done.snakemake().nothing


def test_one_more_repeat(done: Project) -> None:
    campaign = done.campaign()
    campaign["cases"][1]["repeats"] = 3
    done.write_campaign(campaign)
    expect(
        done.snakemake(),
        {"case": 2, "derive": 2, **REPORT},
        ["baseline/decode/r3", "few-slots/decode/r3"],
    )


def test_one_variant_changed(done: Project) -> None:
    campaign = done.campaign()
    campaign["variants"][1]["set"] = {"settings.max_active": 3}
    done.write_campaign(campaign)
    expect(
        done.snakemake(),
        {"launch": 1, "case": 3, "capture": 1, "derive": 3, **REPORT},
        ["few-slots/prefill/r1", *(f"few-slots/{name}" for name in DECODE)],
    )


def test_two_values_swapped(done: Project) -> None:
    """Snakemake compares parameters as a set of values: a swap must not go unnoticed."""
    campaign = done.campaign()
    first, second = campaign["cases"][1], dict(campaign["cases"][1])
    first["isl"], first["osl"] = "2K", "1K"
    done.write_campaign(campaign)
    assert done.snakemake().jobs["case"] == 4
    first["isl"], first["osl"] = "1K", "2K"
    done.write_campaign(campaign)
    assert done.snakemake().jobs["case"] == 4
    assert second["isl"] == "1K"


def test_telemetry_parser_changed(done: Project) -> None:
    path = done.folder / "src/servemap/parsers/proc.py"
    path.write_text(path.read_text() + "\n\nADDED = 1\n")
    expect(done.snakemake(), {"derive": 6, "summary": 1, "report": 1})


def test_a_limit_changed(done: Project) -> None:
    campaign = done.campaign()
    campaign["limits"] = {"error_share": 0.5}
    done.write_campaign(campaign)
    expect(done.snakemake(), {"derive": 6, "summary": 1, "report": 1})


def test_a_target_changed(done: Project) -> None:
    campaign = done.campaign()
    campaign["targets"] = ["success_rate >= 0.99", {"target": "ttft_p90_s <= 0", "gate": True}]
    done.write_campaign(campaign)
    expect(done.snakemake(), {"summary": 1, "report": 1})
    gate = done.servemap("gate", "small")
    assert gate.returncode == 1
    assert "target ttft_p90_s <= 0: fail" in gate.stdout
    assert "target success_rate" not in gate.stdout


def test_report_code_changed(done: Project) -> None:
    path = done.folder / "src/servemap/report/render.py"
    path.write_text(path.read_text() + "\n\nADDED = 1\n")
    expect(done.snakemake(), {"report": 1})


def test_a_comment_in_every_file(done: Project) -> None:
    files = [
        path
        for folder in ("src", "workflow", "profiles", "config")
        for path in (done.folder / folder).rglob("*")
        if path.suffix in (".py", ".smk", ".yaml")
    ]
    for path in [*files, done.folder / "Snakefile", done.folder / "campaign.yaml"]:
        path.write_text(path.read_text() + "\n# a comment\n")
    assert done.snakemake().nothing


def test_touch_on_every_file(done: Project) -> None:
    for path in done.folder.rglob("*"):
        if ".snakemake" not in path.parts and path.is_file():
            os.utime(path)
    assert done.snakemake().nothing


def test_deleted_meta(done: Project) -> None:
    (done.results / "cases/baseline/decode/r2/meta.json").unlink()
    expect(done.snakemake(), {"case": 1, "derive": 1, **REPORT}, ["baseline/decode/r2"])
    assert done.snakemake().nothing


def test_truncated_raw_file(done: Project) -> None:
    raw = done.results / "cases/few-slots/prefill/r1/attempts/001/raw/requests.jsonl"
    raw.write_bytes(raw.read_bytes()[:-10])
    expect(done.snakemake(), {"case": 1, "derive": 1, **REPORT}, ["few-slots/prefill/r1"])
    assert raw.exists(), "the damaged attempt stays as evidence"
    assert done.snakemake().nothing


def test_raw_file_changed_in_place(done: Project) -> None:
    """Same size, other bytes: found by the hash, since the time differs."""
    raw = done.results / "cases/few-slots/prefill/r1/attempts/001/raw/requests.jsonl"
    data = bytearray(raw.read_bytes())
    data[10] ^= 1
    raw.write_bytes(bytes(data))
    expect(done.snakemake(), {"case": 1, "derive": 1, **REPORT}, ["few-slots/prefill/r1"])


@pytest.mark.parametrize("what", ["attempts", "attempts/001/meta.json", "copy", "copy is empty"])
def test_a_record_that_is_lost_or_damaged(done: Project, what: str) -> None:
    """Plan, gate and verify say so, and the same command measures that repeat again."""
    repeat = done.results / "cases/few-slots/decode/r2"
    if what == "attempts":
        shutil.rmtree(repeat / what)
    elif what == "copy":
        (repeat / "meta.json").write_text("{}")
    elif what == "copy is empty":
        (repeat / "meta.json").write_text("")
    else:
        (repeat / what).unlink()
    plan = done.servemap("plan", "--configfile", "campaign.yaml").stdout
    assert "damaged, is measured again" in plan
    assert done.servemap("gate", "small").returncode == 1
    assert done.servemap("verify", "small").returncode == 1
    expect(done.snakemake(), {"case": 1, "derive": 1, **REPORT}, ["few-slots/decode/r2"])
    assert done.servemap("gate", "small").returncode == 0
    assert done.servemap("verify", "small").returncode == 0
    assert done.snakemake().nothing


def test_the_gate_sees_an_altered_raw_file(done: Project) -> None:
    raw = done.results / "cases/few-slots/prefill/r1/attempts/001/raw/requests.jsonl"
    raw.write_bytes(raw.read_bytes()[:-10])
    gate = done.servemap("gate", "small")
    assert gate.returncode == 1
    assert "few-slots/prefill r1: its raw files are not as they were recorded" in gate.stdout


@pytest.mark.parametrize("name", ["metrics.json", "requests.parquet", "telemetry.parquet"])
def test_a_damaged_derived_file_is_made_again(done: Project, name: str) -> None:
    path = done.results / "cases/few-slots/prefill/r1" / name
    path.write_bytes(path.read_bytes()[:-1] if name.endswith("parquet") else b"")
    expect(done.snakemake(), {"derive": 1, "summary": 1, "report": 1})
    assert done.servemap("gate", "small").returncode == 0
    assert done.snakemake().nothing


def test_one_case_by_its_path(done: Project) -> None:
    target = "results/small/cases/few-slots/decode/r1/meta.json"
    expect(done.snakemake("-f", target), {"case": 1}, ["few-slots/decode/r1"])
    assert (done.results / "cases/few-slots/decode/r1/attempts/002/meta.json").exists()
    expect(done.snakemake(), {"derive": 1, **REPORT})
    assert done.snakemake().nothing


def test_pruned_attempt_reruns_nothing(done: Project) -> None:
    target = "results/small/cases/few-slots/decode/r1/meta.json"
    assert done.snakemake("-f", target).code == 0
    assert done.snakemake().code == 0
    shutil.rmtree(done.results / "cases/few-slots/decode/r1/attempts/001")
    assert done.snakemake().nothing


def test_results_copied_without_metadata(done: Project) -> None:
    """Snakemake keeps the results but no longer sees changes; `servemap plan` does, and says so."""
    shutil.rmtree(done.folder / ".snakemake")
    assert done.snakemake().nothing
    plan = done.servemap("plan", "--configfile", "campaign.yaml")
    assert plan.returncode == 0, plan.stderr
    assert "no Snakemake metadata" in plan.stdout
    campaign = done.campaign()
    campaign["cases"][0]["isl"] = "9K"
    done.write_campaign(campaign)
    plan = done.servemap("plan", "--configfile", "campaign.yaml")
    assert plan.stdout.count("changed, is measured again") == 2
    target = "results/small/cases/baseline/prefill/r1/meta.json"
    expect(done.snakemake("-f", target), {"case": 1}, ["baseline/prefill/r1"])


def test_results_copied_with_metadata(done: Project, tmp_path: Path) -> None:
    other = Project.create(tmp_path / "other", done.port)
    other.write_campaign(done.campaign())
    for name in ("results", ".snakemake"):
        shutil.copytree(done.folder / name, other.folder / name)
    shutil.rmtree(other.folder / ".demo")
    shutil.copytree(done.folder / ".demo", other.folder / ".demo")
    try:
        assert other.snakemake().nothing
    finally:
        other.clean_up()


def test_report_renders_without_snakemake(done: Project) -> None:
    shutil.rmtree(done.folder / ".snakemake")
    (done.results / "report.md").unlink()
    assert done.servemap("report", "small").returncode == 0
    assert (done.results / "report.md").exists()


def test_a_parser_error_in_one_derive_job(done: Project) -> None:
    """The derive job ends with 0, the report is there and names it."""
    meta = done.results / "cases/few-slots/prefill/r1/meta.json"
    data = json.loads(meta.read_text())
    data["segments"] = [{"name": "main"}]
    meta.write_text(json.dumps(data))
    run = done.snakemake("-f", "results/small/cases/few-slots/prefill/r1/metrics.json")
    expect(run, {"derive": 1})
    metrics = json.loads((meta.parent / "metrics.json").read_text())
    assert metrics["derive"]["status"] == "failed"
    run = done.snakemake()
    assert run.code == 0
    assert "few-slots" in (done.results / "report.md").read_text()
    gate = done.snakemake("gate")
    assert gate.code != 0
    assert "not derived" in gate.text


@pytest.mark.parametrize("phase", ["phase0", "phase1", "phase2"])
def test_a_finished_phase_needs_nothing(done: Project, phase: str) -> None:
    assert done.snakemake("--", phase).nothing


def test_snakemake_report_of_a_finished_campaign(done: Project) -> None:
    run = done.snakemake("--report", "out.html")
    assert run.code == 0, run.text[-2000:]
    assert (done.folder / "out.html").stat().st_size > 100_000


def test_a_replay_reruns_for_another_trace_and_for_nothing_else(done: Project) -> None:
    """What identifies a trace is its content: not its time, and not where it lies."""
    rows = [
        {"isl": 16 * turn, "osl": 4, "conversation": name, "think_s": 0.05}
        for turn in (2, 4)
        for name in ("a", "b")
    ]
    trace = done.folder / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    replay = {"id": "replay", "kind": "replay", "trace": "trace.jsonl", "concurrency": 2}
    campaign = done.campaign()
    campaign["cases"].append(replay)
    campaign["phases"].append({"id": "phase3", "variants": ["baseline"], "cases": ["replay"]})
    # Whether the demo's engine keeps what several slots share is its own affair.
    campaign["limits"]["replay_share_miss"] = 1
    done.write_campaign(campaign)
    planned = done.servemap("plan", "phase3", "--configfile", "campaign.yaml")
    assert "replay replay: 4 requests of a trace (form servemap), 2 conversations, 192 input" in (
        planned.stdout
    ), planned.stdout + planned.stderr
    # The new limit is one of every derive job's parameters.
    expect(done.snakemake(), {"case": 1, "derive": 7, **REPORT}, ["baseline/replay/r1"])
    folder = done.results / "cases/baseline/replay/r1"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["verdict"] == "valid", metrics["reasons"]
    assert metrics["tokens"]["input_planned"] == metrics["tokens"]["input_actual"] == 192
    assert (metrics["replay"]["conversations"], metrics["replay"]["pauses"]) == (2, 2)
    checks = {check["name"]: check["ok"] for check in metrics["checks"]}
    assert checks["unplanned_cache_hits"] is None
    assert {"cached_share_vs_trace", "schedule_lag_p99_ms"} < checks.keys()
    os.utime(trace, (1, 1))
    moved = done.folder / "elsewhere.jsonl"
    trace.rename(moved)
    replay["trace"] = moved.name
    done.write_campaign(campaign)
    assert done.snakemake("-n").nothing
    moved.write_text(moved.read_text() + json.dumps({"isl": 16, "osl": 1}) + "\n")
    assert done.snakemake("-n").cases == ["baseline/replay/r1"]
    moved.unlink()
    refused = done.snakemake("-n")
    assert refused.code != 0
    assert "elsewhere.jsonl" in refused.text
    assert "remedy: give the path of a readable file" in refused.text
    assert done.servemap("table", "small").returncode == 0
