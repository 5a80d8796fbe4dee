"""The campaign of the lab is planned from the controller's network, with the cluster profile."""

import json
import subprocess

from tests.lab.project import LabProject


def test_campaign_is_planned(project: LabProject) -> None:
    run = project.snakemake("-n")
    assert run.code == 0, run.text[-3000:]
    assert run.jobs["case"] == 2
    assert run.jobs["launch"] == 1
    assert run.jobs["baseline"] == 1
    assert not project.results.exists()


def test_the_load_client_is_calibrated_on_the_head(project: LabProject) -> None:
    campaign = project.campaign()
    for case in campaign["cases"]:
        case["concurrency"] = 2
    project.write_campaign(campaign)
    run = project.snakemake("results/lab/calibration.json")
    assert run.jobs == {"freeze": 1, "calibrate": 1}, run.text[-3000:]
    record = json.loads((project.results / "calibration.json").read_text())
    assert (record["status"], record["node"]) == ("ok", "head")
    assert [row["concurrency"] for row in record["rows"]] == [2]
    assert record["load_before"]
    raw = project.results / "calibration/001/raw/c2"
    lines = map(json.loads, (raw / "requests.jsonl").read_text().splitlines())
    assert sum(not line["warmup"] for line in lines) == record["rows"][0]["requests"] == 8
    assert (raw / "server.jsonl").exists()


def test_kill_controller_spares_the_nodes(project: LabProject) -> None:
    client = subprocess.Popen(project.lab.controller_argv(["sleep", "4815"]))
    project.started.append(client)  # type: ignore[arg-type]
    project.wait_until(
        lambda: project.lab.processes("worker") and project.lab.controller_processes()
    )
    before = [process.pid for process in project.lab.processes("worker")]
    project.kill_controller()
    assert client.returncode == -9
    assert [process.pid for process in project.lab.processes("worker")] == before
    assert project.lab.controller_exec(["true"]).returncode == 0
