"""The controller is killed with -9 while its cases run on the nodes."""

import time
from pathlib import Path
from typing import Any

import pytest

from servemap.model.attempts import intact, read_json, read_records
from tests.lab.lab import Lab
from tests.lab.project import LabProject
from tests.lab.short import await_it, await_load, left, raw_on, short_campaign, target

pytestmark = pytest.mark.timeout(1200)
LEASE_TTL_S = 5


def test_killed_controller(lab: Lab, tmp_path: Path) -> None:
    """kill -9, then the same command; then kill -9 with nobody to start it again.

    The client on the head finishes without its controller and is adopted. Where nobody comes, the
    nodes end what is ours once the lease is over, and the finished case is adopted even then.
    """
    project = LabProject.on(lab, tmp_path / "project")
    project.write_campaign(short_campaign(lab, "first", "second", lease_ttl_s=LEASE_TTL_S))
    targets = [target("first"), target("second")]
    try:
        project.start(*targets)
        await_load(project, "first")
        project.kill_controller()
        killed_s = time.monotonic()
        orphaned = running(lab)
        assert orphaned["head"] >= {"supervise", "llamaserve", "collect", "bench"}
        assert orphaned["worker"] >= {"supervise", "llamaserve", "collect"}

        project.start(*targets)
        await_it(lambda: project.meta("first"), "the adopted case")
        print(f"adopted {time.monotonic() - killed_s:.1f} s after the kill")
        adopted(project, "first")
        await_load(project, "second")
        project.kill_controller()
        killed_s = time.monotonic()
        raw = raw_on(lab, "head", "second")
        whole = await_it(lambda: read_json(raw / "client.json"), "the end of the client")
        assert whole["status"] == "ok"
        await_it(lambda: not left(lab), "the end of all that is ours")
        print(f"nothing runs {time.monotonic() - killed_s:.1f} s after the kill")
        assert project.meta("second") == {}

        again = project.snakemake(*targets)
        assert again.code == 0, again.text[-3000:]
        assert again.cases == ["baseline/second/r1"]
        adopted(project, "second")
        assert left(lab) == {}
        # What ran for the adopted case was not started again.
        assert len(list((project.results / "server/baseline/boots").iterdir())) <= 2
    finally:
        project.clean_up()


def running(lab: Lab) -> dict[str, set[str]]:
    """The programs of ours on each node, by the word that names them."""
    names = {"supervise", "llamaserve", "collect", "bench"}
    return {
        node: {name for line in lines for name in names & set(line.split())}
        for node, lines in left(lab).items()
    }


def adopted(project: LabProject, case: str) -> dict[str, Any]:
    """Assert that a case was finished by another controller than the one that began it."""
    meta = project.meta(case)
    assert (meta["status"], meta["attempt"], meta["reasons"]) == ("ok", 1, [])
    assert meta["adopted"] is True
    (record,) = read_records(project.case_folder(case) / "attempts")
    assert intact(record)
    for node in ("head", "worker"):
        assert f"raw/telemetry/{node}/collectors.json" in meta["files"]
        assert meta["collectors"][f"{node}/proc"]["status"] == "ok"
    return meta
