"""How a campaign ends where one node does not take part, and what is recorded of a secret."""

import time
from pathlib import Path

import psutil
import pytest

from servemap.server.events import read_events
from tests.lab.lab import BENCH, Lab
from tests.lab.project import LabProject
from tests.lab.short import await_it, await_load, left, short_campaign, target

pytestmark = pytest.mark.timeout(600)
KEYS = f"{BENCH.home}/.ssh/authorized_keys"
LEASE = "tmp/servemap-lease/lease.json"


def test_a_node_that_refuses_the_key_holds_no_other_up(lab: Lab, tmp_path: Path) -> None:
    """In the midst of a case the worker takes the key no more, and its connection ends.

    The head's server is stopped and its lease given back at once; what is left on the worker is
    named, keeps the worker's lease, and ends by itself.
    """
    project = LabProject.on(lab, tmp_path / "project")
    project.write_campaign(short_campaign(lab, "one", lease_ttl_s=12))
    keys = lab.path("worker", KEYS)
    away = keys.with_name("away")
    try:
        project.start(target("one"))
        await_load(project, "one")
        keys.rename(away)
        end_logins(lab, "worker")
        refused_s = time.monotonic()
        project.wait()
        remains = left(lab)
        assert set(remains) == {"worker"}, remains
        assert not lab.path("head", LEASE).exists()
        assert lab.path("worker", LEASE).exists()
        found = read_events(project.results)
        (event,) = (event for event in found if event["event"] == "rank_left")
        assert event["node"] == "worker"
        assert "refused" in event["error"]
        assert "node worker: its lease was not given back" in project.log()
        assert project.meta("one")["status"] == "failed"
        await_it(lambda: not left(lab), "the end of what was left on the worker", 60)
        print(f"nothing runs {time.monotonic() - refused_s:.1f} s after the refusal")
    finally:
        if away.exists():
            away.rename(keys)
        project.clean_up()


def end_logins(lab: Lab, node: str) -> None:
    """End the processes of sshd that serve the user's connections."""
    for process in lab.processes(node):
        try:
            if process.name().startswith("sshd") and process.uids().real == BENCH.uid:
                process.kill()
        except psutil.NoSuchProcess:
            continue
