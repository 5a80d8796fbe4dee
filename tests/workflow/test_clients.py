"""Cases of a load client of others, from the campaign file to the report; the client is made up."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_client import MODES, make
from tests.workflow.harness import Project, free_port
from tests.workflow.test_faults import events, meta, wait_client

CASE = {
    "isl": 16, "osl": 4, "concurrency": 6, "num_prompts": 6, "client": "vllm-bench",
    "case_timeout_s": 60,
}  # fmt: skip


def with_client(project: Project, mode: str, **case: Any) -> None:
    """Make the campaign one case of a client that behaves so."""
    campaign = project.campaign()
    campaign["variants"] = campaign["variants"][:1]
    campaign["cases"] = [{"id": mode, **CASE, **case}]
    campaign["phases"] = [{"id": "phase1", "cases": [mode]}]
    campaign["clients"] = {"vllm-bench": {"python": str(make(project.folder / "clients", mode))}}
    campaign["policy"] |= {"max_attempts": 1}
    project.write_campaign(campaign)


def metrics(project: Project, case: str) -> dict[str, Any]:
    path = project.results / f"cases/baseline/{case}/r1/metrics.json"
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project in which one case was measured for each way in which the client behaves."""
    made = Project.create(tmp_path_factory.mktemp("clients") / "project", free_port())
    with_client(made, "by-osl")
    campaign = made.campaign()
    campaign["cases"] = [
        {**CASE, "id": mode, "osl": osl, "case_timeout_s": 2 if mode == "hang" else 60}
        for osl, mode in enumerate(MODES, start=2)
    ]
    campaign["phases"] = [{"id": "phase1", "cases": list(MODES)}]
    made.write_campaign(campaign)
    (made.folder / "clients" / "go").touch()
    run = made.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert "Traceback" not in run.text
    yield made
    made.clean_up()


def test_a_client_from_the_campaign_file_to_the_report(fresh: Project) -> None:
    with_client(fresh, "ok")
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    record, found = meta(fresh, "baseline", "ok"), metrics(fresh, "ok")
    assert record["status"] == "ok", record["reasons"]
    assert record["counts"]["ok"] == 6
    assert record["client"]["version"] == "0.0.fake"
    (segment,) = record["segments"]
    assert segment["source"] == "the client's stamps"
    assert segment["end_ns"] - segment["start_ns"] == 200_000_000
    assert found["verdict"] == "valid", found["reasons"]
    figures = found["segments"][0]["metrics"]
    assert figures["agg_output_tps"] == pytest.approx(6 * 4 / 0.2)
    assert figures["ttft_s"]["p50"] == pytest.approx(0.04)
    assert figures["retried"] is None
    assert found["client_summary"]["figures"]["mean_ttft_ms"] == pytest.approx(40)
    assert found["warmup"] == {"ok": 1, "failed": 0}, "servemap's own, on the real server"
    report = (fresh.results / "report.md").read_text()
    assert "Other load clients" in report
    assert "What vllm-bench means by its figures" in report
    again = fresh.snakemake()
    assert again.nothing, again.text[-2000:]
    raw = record["files"].keys()
    assert {"raw/client/result.json", "raw/lines.jsonl", "raw/warmup/requests.jsonl"} <= raw


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("dies", "vllm-bench ended with exit code 3: ValueError: this is why"),
        ("cut", "vllm-bench: result.json is not whole JSON"),
        ("hang", "case timeout: vllm-bench did not end within 2 s"),
        ("all-failed", "no request succeeded (6 x OSError: no way)"),
    ],
)
def test_a_client_that_fails_is_a_failed_attempt_with_a_reason(
    project: Project, mode: str, reason: str
) -> None:
    record = meta(project, "baseline", mode)
    assert record["status"] == "failed"
    assert len(record["reasons"]) == 1
    assert reason in record["reasons"][0]
    assert metrics(project, mode)["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("mode", "verdict", "reason"),
    [
        ("disagrees", "invalid", "mean_ttft_ms is 40.4, its requests give 40"),
        ("one-failed", "invalid", "error_share"),
        ("ok", "valid", ""),
        ("no-stamps", "valid", ""),
    ],
)
def test_what_a_client_says_is_judged(
    project: Project, mode: str, verdict: str, reason: str
) -> None:
    record, found = meta(project, "baseline", mode), metrics(project, mode)
    assert record["status"] == "ok", record["reasons"]
    assert found["verdict"] == verdict, found["reasons"]
    assert reason in "; ".join(found["reasons"])
    if mode == "no-stamps":
        assert record["segments"][0]["source"] == "the client's lines"


def test_a_client_goes_on_without_its_controller_and_is_adopted(fresh: Project) -> None:
    with_client(fresh, "slow")
    controller = fresh.start()
    wait_client(fresh, "slow")
    controller.kill()
    controller.wait()
    (fresh.folder / "clients" / "go").touch()
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert len(events(fresh, "adopt")) == 1
    record = meta(fresh, "baseline", "slow")
    assert (record["status"], record["attempt"]) == ("ok", 1)


def test_a_killed_client_leaves_nothing_behind(fresh: Project) -> None:
    """What runs below the agent is found by its mark also where the agent itself is gone."""
    with_client(fresh, "hang")
    controller = fresh.start()
    opening = wait_client(fresh, "hang")
    lines = fresh.wait_for("cases/baseline/hang/r1/attempts/001/raw/lines.jsonl")
    while not lines.read_text():
        assert controller.poll() is None
    os.kill(opening["client"]["pid"], signal.SIGKILL)
    controller.wait(240)
    record = meta(fresh, "baseline", "hang")
    assert record["status"] == "failed"
    assert "the load client left no record" in record["reasons"][0]
    fake = str(fresh.folder / "clients").encode()
    left = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and fake in _command(entry)
    ]
    assert left == [], "it was ended before its attempt was closed"


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
