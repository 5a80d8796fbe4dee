"""The campaign of the lab is planned from the controller's network, with the cluster profile."""

import subprocess

from tests.lab.project import LabProject


def test_campaign_is_planned(project: LabProject) -> None:
    run = project.snakemake("-n")
    assert run.code == 0, run.text[-3000:]
    assert run.jobs["case"] == 2
    assert run.jobs["launch"] == 1
    assert run.jobs["baseline"] == 1
    assert not project.results.exists()


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
