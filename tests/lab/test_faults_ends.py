"""How a campaign ends where one node does not take part, and what is recorded of a secret."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from servemap.server.events import read_events
from tests.lab.lab import BENCH, SECOND, Lab
from tests.lab.project import LabProject
from tests.lab.short import await_it, await_load, left, short_campaign, target

pytestmark = pytest.mark.timeout(1200)
KEYS = f"{BENCH.home}/.ssh/authorized_keys"
VALUE = "zq9-quietly-known-77x"
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
        await_it(lambda: not left(lab), "the end of what was left on the worker")
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


def test_a_secret_that_a_server_prints_is_nowhere(lab: Lab, tmp_path: Path) -> None:
    """The value of a secret is in no file here, and on the nodes only this user may read it."""
    project = LabProject.on(lab, tmp_path / "project")
    data = short_campaign(lab, "one")
    data["server"]["python"] = "/opt/engine/bin/python"
    data["server"]["env"] = {"ENGINE_LOGIN": {"secret": "LAB_LOGIN"}}
    project.write_campaign(data)
    wrap(lab, 'echo "config: login is $ENGINE_LOGIN ok"; env')
    try:
        project.start(target("one"), LAB_LOGIN=VALUE)
        assert project.wait() == 0
        assert project.meta("one")["status"] == "ok"
        assert said(tmp_path) == []
        for node in lab.inits:
            seen = lab.exec_in(node, ["grep", "-rlsF", VALUE, BENCH.home], user=SECOND)
            assert seen.stdout == ""
            kept = lab.exec_in(node, ["grep", "-rlsF", VALUE, BENCH.home], user=BENCH)
            assert ".log" in kept.stdout, "the server did not say it"

        fails = 'echo "cannot log in with $ENGINE_LOGIN" >&2; exit 3'
        wrap(lab, f'case "$*" in *llamaserve*) {fails};; esac')
        project.start("-f", target("one"), LAB_LOGIN=VALUE)
        project.wait()
        assert "cannot log in with <redacted>" in str(project.meta("one")["reasons"])
        assert said(tmp_path) == []
    finally:
        project.clean_up()


def wrap(lab: Lab, before: str) -> None:
    """Let the server's interpreter do something before it starts on every node."""
    for node in lab.inits:
        path = lab.path(node, "/opt/engine/bin/python")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{before}\nexec {sys.executable} "$@"\n')
        path.chmod(0o755)


def said(folder: Path) -> list[str]:
    """Return the files below a folder that hold the secret."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and VALUE.encode() in path.read_bytes()
    ]
