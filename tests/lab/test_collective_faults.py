"""Collectives on two machines where something is wrong: words, no leftovers, the others go on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.lab.lab import Lab
from tests.lab.project import LabProject
from tests.parts import need

pytestmark = pytest.mark.timeout(600)
LISTEN = (
    "import socket, time\n"
    "s = socket.socket()\n"
    "s.bind(('0.0.0.0', 29500))\n"
    "s.listen()\n"
    "print('listening', flush=True)\n"
    "time.sleep(600)\n"
)


@pytest.fixture
def ready(lab: Lab, tmp_path: Path) -> Iterator[LabProject]:
    need("vllm")
    project = LabProject.on(lab, tmp_path / "project")
    yield project
    project.clean_up()


def campaign_of(project: LabProject, *baselines: dict[str, Any]) -> dict[str, Any]:
    given = [{"kind": "collective", **one} for one in baselines]
    campaign = project.campaign()
    return {
        **campaign,
        "baselines": [*given, *campaign["baselines"]],
        "phases": [{"id": "phase0", "baselines": [*(one["id"] for one in given), "network"]}],
        "policy": {**campaign["policy"], "lost_node_s": 5, "lease_ttl_s": 10, "max_attempts": 1},
    }


def record(project: LabProject, name: str) -> dict[str, Any]:
    return dict(json.loads((project.results / f"baselines/{name}.json").read_text()))


def ranks_on(lab: Lab, node: str) -> list[int]:
    found = []
    for process in lab.processes(node):
        try:
            if "torch_ranks.py" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_no_torch_in_an_interpreter_costs_no_other_baseline(ready: LabProject) -> None:
    bare = {"id": "bare", "python": "/usr/bin/python3", "sizes": ["8K"]}
    ready.write_campaign(campaign_of(ready, bare))
    ready.snakemake("--keep-going", "--", "phase0", timeout=300)
    assert "/usr/bin/python3 has no torch" in record(ready, "bare")["reasons"][0]
    assert record(ready, "bare")["status"] == "failed"
    assert record(ready, "network")["status"] == "ok"
    assert not ranks_on(ready.lab, "head") + ranks_on(ready.lab, "worker")


def test_a_port_that_is_taken_is_named_with_its_owner(ready: LabProject) -> None:
    lab = ready.lab
    taken = {"id": "taken", "python": need("vllm"), "sizes": ["8K"]}
    ready.write_campaign(campaign_of(ready, taken))
    lab.path("head", "/tmp/listen.py").write_text(LISTEN)
    lab.exec_in("head", ["sh", "-c", "setsid python3 /tmp/listen.py > /tmp/said 2>&1 &"])
    ready.wait_until(lambda: "listening" in lab.path("head", "/tmp/said").read_text())
    ready.snakemake("--keep-going", "--", "phase0", timeout=300)
    found = record(ready, "taken")
    assert (found["status"], found["results"]) == ("failed", [])
    assert "port 29500" in found["reasons"][0]
    assert record(ready, "network")["status"] == "ok"


def test_a_link_that_is_cut_fails_the_baseline_and_the_ranks_end_by_themselves(
    ready: LabProject,
) -> None:
    lab = ready.lab
    long = {
        "id": "long", "python": need("vllm"), "operations": ["all_reduce"],
        "sizes": ["8K", "64M"], "iterations": 200, "timeout_s": 200,
    }  # fmt: skip
    ready.write_campaign(campaign_of(ready, long))
    ready.start("--keep-going", "--", "phase0")
    where = ["grep", "-rq", "--include=*.log", '"operation"', "/home/bench/.local/state/servemap"]
    ready.wait_until(lambda: lab.exec_in("head", where).returncode == 0, 120)
    lab.cut("worker")
    ready.wait_until(lambda: (ready.results / "baselines/long.json").exists(), 120)
    lab.heal("worker")
    ready.wait(120)
    found = record(ready, "long")
    assert (found["status"], found["results"][0]["rows"]) == ("failed", [])
    assert "worker could not be reached" in found["reasons"][0]
    ready.wait_until(lambda: not ranks_on(lab, "head") + ranks_on(lab, "worker"), 60)
