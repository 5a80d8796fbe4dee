"""Baselines: what measures one again, what does not, and what a kill leaves."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.workflow.harness import Project, free_port
from tests.workflow.stand_in import put_programs

BASELINE = "phase0"
RING, LOOPBACK = "ring", "loopback"


def with_ring(project: Project) -> None:
    """Let the only phase that is run measure TCP and a collective of a stand-in for nccl-tests."""
    campaign = project.campaign()
    campaign["server"]["env"] = {"NCCL_ALGO": "Ring"}
    campaign["baselines"].append(
        {
            "id": RING, "kind": "collective", "tool": "nccl-tests", "nodes": "each",
            "launch": "process", "ranks_per_node": 2, "python": sys.executable,
            "programs": put_programs(project.folder / "programs"),
            "operations": ["all_reduce"], "sizes": ["8K", "16K"], "iterations": 2, "warmup": 1,
        }
    )  # fmt: skip
    campaign["phases"][0]["baselines"] = [LOOPBACK, RING]
    project.write_campaign(campaign)


def record(project: Project, name: str) -> dict[str, Any]:
    return dict(json.loads((project.results / f"baselines/{name}.json").read_text()))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose two baselines were measured, and nothing else."""
    project = Project.create(tmp_path_factory.mktemp("measured") / "project", free_port())
    with_ring(project)
    run = project.snakemake("--", BASELINE)
    assert (run.code, run.jobs) == (0, {"freeze": 1, "baseline": 2}), run.text[-3000:]
    assert record(project, RING)["status"] == "ok", record(project, RING)["reasons"]
    yield project
    project.clean_up()


@pytest.fixture
def copied(measured: Project, tmp_path: Path) -> Iterator[Project]:
    """A copy of it that a test may change; programs stay where they were measured."""
    project = measured.copy(tmp_path / "project")
    yield project
    project.clean_up()


def ring(campaign: dict[str, Any]) -> dict[str, Any]:
    return dict(campaign["baselines"][1])


def with_changed(**keys: Any) -> Callable[[dict[str, Any]], None]:
    def change(campaign: dict[str, Any]) -> None:
        campaign["baselines"][1] = ring(campaign) | keys

    return change


def tcp_changed(campaign: dict[str, Any]) -> None:
    campaign["baselines"][0]["pings"] = 21


def env_changed(campaign: dict[str, Any]) -> None:
    campaign["server"]["env"] = {"NCCL_ALGO": "Tree"}


def node_env_changed(campaign: dict[str, Any]) -> None:
    campaign["nodes"][0]["env"] = {"NCCL_SOCKET_IFNAME": "lo"}


def planned(project: Project) -> list[str]:
    """Return the baselines that `snakemake -n` says are measured."""
    run = project.snakemake("-n", "--", BASELINE)
    assert run.code == 0, run.text[-3000:]
    assert run.jobs.keys() <= {"baseline"}, run.text[-3000:]
    found = [line for line in run.text.splitlines() if line.startswith("    wildcards: ")]
    return sorted(line.partition("baseline=")[2] for line in found)


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (with_changed(sizes=["8K", "16K", "32K"]), RING),
        (with_changed(operations=["all_reduce", "all_gather"]), RING),
        (with_changed(tool="rccl-tests"), RING),
        (with_changed(iterations=3), RING),
        (with_changed(sweep={"NCCL_CROSS_NIC": [0, 1]}), RING),
        (env_changed, RING),
        (node_env_changed, RING),
        (tcp_changed, LOOPBACK),
    ],
    ids=["sizes", "operation", "tool", "iterations", "sweep", "server.env", "node.env", "tcp"],
)
def test_what_a_baseline_is_made_of_measures_that_one_again(
    copied: Project, change: Callable[[dict[str, Any]], None], again: str
) -> None:
    campaign = copied.campaign()
    change(campaign)
    copied.write_campaign(campaign)
    assert planned(copied) == [again]


def test_what_it_does_not_depend_on_measures_none_again(copied: Project) -> None:
    """Another case, limit, variant, collector, policy, argument, spelling and order of keys."""
    campaign = copied.campaign()
    campaign["cases"][0]["isl"] = "9K"
    campaign["limits"] |= {"error_share": 0.5, "slower_share": 0.5}
    campaign["variants"][1]["set"] = {"settings.max_active": 3}
    campaign["collectors"]["proc"]["interval_s"] = 0.2
    campaign["policy"]["lease_ttl_s"] = 30
    campaign["server"]["args"]["n_threads"] = 2
    campaign["baselines"][1] = dict(reversed((ring(campaign) | {"sizes": [8192, "16K"]}).items()))
    copied.write_campaign(campaign)
    assert planned(copied) == []


def test_a_changed_size_is_measured_and_the_other_baseline_kept(copied: Project) -> None:
    before = record(copied, LOOPBACK)
    campaign = copied.campaign()
    with_changed(sizes=["8K", "16K", "32K"])(campaign)
    copied.write_campaign(campaign)
    run = copied.snakemake("--", BASELINE)
    assert (run.code, run.jobs) == (0, {"baseline": 1}), run.text[-3000:]
    (part,) = record(copied, RING)["results"]
    assert [row["size_bytes"] for row in part["rows"]] == [8192, 16384, 32768]
    assert record(copied, LOOPBACK) == before
    tries = sorted(path.name for path in (copied.results / "baselines/raw/ring").iterdir())
    assert tries == ["001", "002"], "what was measured before stays as evidence"
    assert copied.snakemake("--", BASELINE).nothing


def test_facts_that_are_frozen_anew_measure_all_again(copied: Project) -> None:
    frozen = "results/small/freeze/local.json"
    run = copied.snakemake("-n", "-f", frozen, BASELINE)
    assert run.jobs == {"freeze": 1, "baseline": 2}, run.text[-3000:]
    run = copied.snakemake("-f", frozen, BASELINE)
    assert (run.code, run.jobs) == (0, {"freeze": 1, "baseline": 2}), run.text[-3000:]
    assert copied.snakemake("--", BASELINE).nothing


def test_a_frozen_fact_that_changed_measures_all_again(copied: Project) -> None:
    """What counts is what stands in it: a touched file is no other fact."""
    frozen = copied.results / "freeze/local.json"
    os.utime(frozen)
    assert planned(copied) == []
    facts = json.loads(frozen.read_text())
    facts["facts"]["kernel"]["release"] = "0.0-other"
    frozen.write_text(json.dumps(facts))
    assert planned(copied) == [LOOPBACK, RING]


@pytest.mark.parametrize("what", ["record", "raw file"])
def test_a_baseline_whose_files_are_gone_is_measured_again(copied: Project, what: str) -> None:
    if what == "record":
        (copied.results / "baselines/ring.json").unlink()
    else:
        (raw,) = (copied.results / "baselines/raw/ring/001/raw").glob("*.log")
        raw.write_bytes(raw.read_bytes()[:-10])
    assert planned(copied) == [RING]


def wait_for(path: Path, project: Project, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path} within {timeout_s} s: {project.log()}"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_baseline_resumes_and_what_it_had_started_is_ended_first(
    copied: Project,
) -> None:
    """The one that was done stays; the killed one is no try that counts."""
    shutil.rmtree(copied.results / "baselines")
    campaign = copied.campaign()
    with_changed(programs=put_programs(copied.folder / "held"))(campaign)
    # However slow the machine is, the watchdog does not end it before the next command does.
    campaign["policy"] |= {"max_attempts": 1, "lease_ttl_s": 600}
    copied.write_campaign(campaign)
    hold, running = copied.folder / "held/hold", copied.folder / "held/running"
    hold.touch()
    controller = copied.start("--", BASELINE)
    wait_for(running, copied)
    left = int(running.read_text())
    before = record(copied, LOOPBACK)
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    assert not (copied.results / "baselines/ring.json").exists()
    assert planned(copied) == [RING]
    assert lives(left), "the program goes on without its controller"
    running.unlink()
    again = copied.start("--", BASELINE)
    wait_for(running, copied)
    assert int(running.read_text()) != left
    assert not lives(left)
    hold.unlink()
    assert again.wait(240) == 0, copied.log()[-3000:]
    found = record(copied, RING)
    assert (found["status"], found["token"]) == ("ok", 1), found["reasons"]
    assert record(copied, LOOPBACK) == before
    assert copied.snakemake("--", BASELINE).nothing
