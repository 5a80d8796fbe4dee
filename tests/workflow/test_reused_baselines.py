"""A second run takes the baselines of the first one, where the frozen facts are the same."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parts import need
from tests.workflow.harness import Project, free_port
from tests.workflow.stand_in import put_programs

BASELINE = "phase0"
SMALL: dict[str, Any] = {
    "id": "ring", "kind": "collective", "ranks_per_node": 2, "nodes": "each",
    "operations": ["all_reduce"], "sizes": ["8K", "16K"], "iterations": 2, "warmup": 1,
}  # fmt: skip


def record(project: Project, run: str, name: str) -> dict[str, Any]:
    return dict(json.loads((project.folder / f"results/{run}/baselines/{name}.json").read_text()))


def measure(project: Project, ring: dict[str, Any]) -> None:
    """Measure both baselines in the run `small`, then name a second run that asks for them."""
    campaign = project.campaign()
    campaign["server"]["master_port"] = free_port()
    campaign["baselines"].append(SMALL | ring)
    campaign["phases"][0]["baselines"] = ["loopback", "ring"]
    campaign["policy"]["max_attempts"] = 5
    project.write_campaign(campaign)
    run = project.snakemake("--", BASELINE)
    assert run.code == 0, run.text[-3000:]
    assert record(project, "small", "ring")["status"] == "ok"
    for baseline in campaign["baselines"]:
        baseline["reuse_from"] = "small"
    project.write_campaign(campaign | {"run": "second"})


def stand_in(project: Project) -> dict[str, Any]:
    programs = put_programs(project.folder / "programs")
    return {"tool": "nccl-tests", "launch": "process", "python": sys.executable,
            "programs": programs}  # fmt: skip


def taken(project: Project) -> None:
    """Take both baselines in the second run; nothing is measured, and it is said of which run."""
    run = project.snakemake("--", BASELINE)
    assert (run.code, run.jobs) == (0, {"freeze": 1, "baseline": 2}), run.text[-3000:]
    for name in ("loopback", "ring"):
        first, second = (record(project, run, name) for run in ("small", "second"))
        assert second["status"] == "ok", second["reasons"]
        assert second["results"] == first["results"]
        assert second["reused"]["run"] == "small"
        assert second["reused"]["started_ns"] == first["started_ns"]
        assert second["files"] == {}, "no command ran for it"
    assert project.snakemake("-n", "--", BASELINE).nothing
    made = project.servemap("report", "second")
    assert made.returncode == 0, made.stderr
    report = (project.folder / "results/second/report.md").read_text()
    assert "ring was not measured in this run: its figures are those of run small" in report


def test_figures_of_real_ranks_are_taken(fresh: Project) -> None:
    """gloo of the engine's own torch, two ranks of this machine."""
    measure(fresh, {"python": need("vllm")})
    (part,) = record(fresh, "small", "ring")["results"]
    assert (part["backend"], part["simulated"]) == ("gloo", False)
    taken(fresh)


def test_figures_are_taken_and_refused_with_the_reason_where_something_differs(
    fresh: Project,
) -> None:
    measure(fresh, stand_in(fresh))
    taken(fresh)
    campaign = fresh.campaign()

    frozen = fresh.folder / "results/second/freeze/local.json"
    facts = json.loads(frozen.read_text())
    kernel = facts["facts"]["kernel"]["release"]
    facts["facts"]["kernel"]["release"] = "0.0-other"
    frozen.write_text(json.dumps(facts))
    assert fresh.snakemake("-n", "--", BASELINE).jobs == {"baseline": 2}
    run = fresh.snakemake("--", BASELINE)
    assert (run.code, run.jobs) == (0, {"baseline": 2}), run.text[-3000:]
    assert f"kernel of node local was {kernel}, is 0.0-other" in run.text
    refused(fresh, f"kernel of node local was {kernel}, is 0.0-other")
    gate = fresh.servemap("gate", "second")
    assert gate.returncode == 1
    assert "fails the gate: baseline ring: failed: the baseline of run 'small'" in gate.stdout

    facts["facts"]["kernel"]["release"] = kernel
    frozen.write_text(json.dumps(facts))
    campaign["baselines"][1]["sizes"] = ["8K", "32K"]
    fresh.write_campaign(campaign)
    assert fresh.snakemake("--", BASELINE).jobs == {"baseline": 2}
    assert record(fresh, "second", "loopback")["reused"]["run"] == "small"
    refused(fresh, "sizes was [8192, 16384], is [8192, 32768]")

    del campaign["baselines"][1]["reuse_from"]
    fresh.write_campaign(campaign)
    assert fresh.snakemake("--", BASELINE).jobs == {"baseline": 1}
    found = record(fresh, "second", "ring")
    assert (found["status"], found["reused"]) == ("ok", None), found["reasons"]
    assert [row["size_bytes"] for row in found["results"][0]["rows"]] == [8192, 32768]
    assert record(fresh, "second", "loopback")["reused"]["run"] == "small"


def refused(project: Project, why: str) -> None:
    found = record(project, "second", "ring")
    assert (found["status"], found["results"]) == ("failed", [])
    (reason,) = found["reasons"]
    assert why in reason
    assert "remedy: remove reuse_from, so that this run measures it" in reason


def test_a_run_that_is_not_there_and_one_that_failed_are_named(fresh: Project) -> None:
    programs = stand_in(fresh)
    (Path(programs["programs"]) / "all_reduce_perf").unlink()
    campaign = fresh.campaign()
    campaign["baselines"].append(SMALL | programs)
    campaign["phases"][0]["baselines"] = ["ring"]
    fresh.write_campaign(campaign)
    assert fresh.snakemake("--", BASELINE).code == 0
    assert record(fresh, "small", "ring")["status"] == "failed"
    for run, why in (("small", "has a record that is failed"), ("none", "has no such record")):
        campaign["baselines"][1]["reuse_from"] = run
        fresh.write_campaign(campaign | {"run": "second"})
        assert fresh.snakemake("--", BASELINE).code == 0
        refused(fresh, f"the baseline of run {run!r} cannot be taken: it {why}")


@pytest.fixture(autouse=True)
def no_server(fresh: Project) -> Any:
    """No test of this file starts one."""
    yield
    assert fresh.server_pids() == []
