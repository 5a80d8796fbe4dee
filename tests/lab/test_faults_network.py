"""Faults of the way to a node: who it is, its cable, its power, the machine in between.

One lab for all of them; each puts right what it broke. Figures are in seconds from the fault.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.lab import faults
from tests.lab.lab import BENCH, Lab
from tests.lab.project import LabProject, campaign

TARGET = "phase1"
WINDOW_S = 3
Record = Callable[[str, object], None]
"""pytest's record_property: figures go into the JUnit report."""
Make = Callable[[dict[str, Any]], LabProject]
Mistake = Callable[[Lab, dict[str, Any], Path], AbstractContextManager[str]]


@pytest.fixture(scope="module")
def lab(seed: Path) -> Iterator[Lab]:
    """Two running machines for all tests here."""
    with Lab(seed) as running:
        yield running


@pytest.fixture
def make(lab: Lab, tmp_path: Path) -> Iterator[Make]:
    """Make a project with a campaign; in the end nothing of it may run on the nodes."""
    made: list[LabProject] = []

    def make(data: dict[str, Any]) -> LabProject:
        project = LabProject.on(lab, tmp_path / "project")
        project.write_campaign(data)
        made.append(project)
        return project

    yield make
    for node in lab.machines.keys() - lab.inits.keys():
        lab.power_on(node)
    for node in lab.machines:
        lab.heal(node)
    for project in made:
        project.clean_up()
    for node in lab.machines:
        for process in running(lab, node):
            process.kill()


def small(lab: Lab, *cases: str, **policy: Any) -> dict[str, Any]:
    """Return a campaign of short cases on both nodes."""
    data = campaign(lab)
    del data["baselines"]
    data["cases"] = [
        {"id": case, "isl": "1K", "osl": "1K", "concurrency": 1, "min_window_s": WINDOW_S}
        for case in cases
    ]
    data["phases"] = [{"id": TARGET, "cases": list(cases)}]
    data["policy"] |= {"calibrate": False, **policy}
    return data


def worker_of(data: dict[str, Any]) -> dict[str, Any]:
    return dict(next(node for node in data["nodes"] if node["id"] == "worker"))


def running(lab: Lab, node: str) -> list[psutil.Process]:
    """Return what runs on a node for the campaign's user, logins left out."""
    found = []
    for process in lab.processes(node):
        try:
            if process.uids().real == BENCH.uid and process.name() != "sshd":
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def nothing_runs(project: LabProject) -> bool:
    return not any(running(project.lab, node) for node in project.lab.inits)


def events(project: LabProject, name: str) -> list[dict[str, Any]]:
    path = project.results / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def since(project: LabProject, fault_ns: int, name: str, **facts: Any) -> float:
    """Return the seconds from a fault to the first event of a kind after it."""
    return next(
        (event["t_ns"] - fault_ns) / 1e9
        for event in events(project, name)
        if event["t_ns"] > fault_ns and facts.items() <= event.items()
    )


def in_case(project: LabProject, case: str) -> None:
    """Wait until the load of a case runs for a second."""
    attempts = project.case_folder(case) / "attempts"
    project.wait_until(lambda: attempts.exists() and project.load_runs())
    time.sleep(1)


def assert_whole(project: LabProject, case: str, attempt: int) -> dict[str, Any]:
    """Check that a case counts, by an attempt with files of both nodes that are all as recorded."""
    meta = project.meta(case)
    assert (meta["status"], meta["attempt"], meta["reasons"]) == ("ok", attempt, [])
    assert meta["counts"]["ok"] == meta["counts"]["planned"] > 0
    assert {f"raw/telemetry/{node}/proc.jsonl" for node in project.lab.machines} <= set(
        meta["files"]
    )
    folder = project.case_folder(case) / "attempts" / f"{attempt:03d}"
    for name, facts in meta["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"], name
    return meta


def assert_failed(project: LabProject, case: str, attempt: int) -> str:
    """Check that an attempt is recorded as failed and that no figures of it count; its reasons."""
    meta = project.attempts(case)[attempt - 1]
    assert meta["status"] == "failed"
    metrics = project.case_folder(case) / "metrics.json"
    if metrics.exists() and (found := json.loads(metrics.read_text()))["attempt"] == attempt:
        assert found["verdict"] == "invalid"
    return " ".join(meta["reasons"])


def assert_resumes(project: LabProject, *, kept: str, again: str) -> None:
    """Give the same command once more: it measures what failed, and nothing that is there."""
    before = project.attempts(kept)
    run = project.snakemake(TARGET)
    assert run.code == 0, run.text[-3000:]
    assert run.cases == [f"baseline/{again}/r1"]
    assert project.attempts(kept) == before
    assert_whole(project, kept, 1)
    assert_whole(project, again, 2)
    project.wait_until(lambda: nothing_runs(project))
    assert not (project.results / ".left.json").exists()


# Before anything runs.


def refused_at_the_start(project: LabProject) -> str:
    """Start a campaign that cannot begin: what is said, and that it left nothing anywhere."""
    run = project.snakemake("results/lab/freeze/worker.json")
    assert run.code == 1
    assert not run.jobs["freeze"] or "Finished jobid" not in run.text
    assert "Traceback" not in run.text
    assert not project.results.exists(), "a run that never began has no folder"
    project.wait_until(lambda: nothing_runs(project))
    held = project.lab.path("head", "/tmp/servemap-lease").glob("*")
    assert not [path for path in held if path.read_text()], "no node is held"
    return run.text


def begins(project: LabProject) -> None:
    run = project.snakemake("results/lab/freeze/worker.json")
    assert run.code == 0, run.text[-3000:]


def test_host_down_at_start(lab: Lab, make: Make) -> None:
    """A machine is off. It is named with its address; switched on, the same command goes on."""
    project = make(small(lab, "one"))
    lab.power_off("worker")
    said = refused_at_the_start(project)
    assert "cannot connect: No route to host" in said
    assert "where: node worker: bench@10.77.0.12 port 22" in said
    assert "remedy: see that the machine is up" in said
    assert "node head" not in said
    lab.power_on("worker")
    begins(project)


@contextmanager
def login_refused(lab: Lab, data: dict[str, Any], folder: Path) -> Iterator[str]:
    keys = lab.path("worker", f"{BENCH.home}/.ssh/authorized_keys")
    given = keys.read_text()
    keys.write_text("")
    yield "the login as 'bench' was refused with the key"
    keys.write_text(given)


@contextmanager
def host_key_unknown(lab: Lab, data: dict[str, Any], folder: Path) -> Iterator[str]:
    known = faults.known_hosts_without(lab, "worker", folder / "known_hosts")
    for node in data["nodes"]:
        node["known_hosts"] = str(known)
    yield "the host key of 10.77.0.12 is not known: ssh-ed25519 SHA256:"
    known.write_text(lab.known_hosts.read_text())


@contextmanager
def host_key_changed(lab: Lab, data: dict[str, Any], folder: Path) -> Iterator[str]:
    key = lab.path("worker", faults.HOST_KEY)
    before = key.read_text()
    faults.new_host_key(lab, "worker")
    yield "the host key of 10.77.0.12 has changed: it shows ssh-ed25519 SHA256:"
    faults.stop_sshd(lab, "worker")
    key.write_text(before)
    faults.start_sshd(lab, "worker")


@pytest.mark.parametrize("mistake", [login_refused, host_key_unknown, host_key_changed])
def test_worker_or_we_are_not_who_was_expected(
    lab: Lab, make: Make, tmp_path: Path, mistake: Mistake
) -> None:
    """The login is refused, or the host key is unknown or another: each is told from the others."""
    data = small(lab, "one")
    with mistake(lab, data, tmp_path) as words:
        project = make(data)
        said = refused_at_the_start(project)
        assert words in said
        assert "where: node worker: bench@10.77.0.12 port 22" in said
        assert "remedy: " in said
    begins(project)


# Cables.


def test_short_cuts_cost_nothing(lab: Lab, make: Make, record_property: Record) -> None:
    """The link is cut for 5 s in a case: the worker's, then the head's. Both cases count."""
    project = make(small(lab, "one", "two"))
    project.start(TARGET)
    for case, node in (("one", "worker"), ("two", "head")):
        in_case(project, case)
        cut_ns = time.time_ns()
        lab.cut(node)
        time.sleep(5)
        assert not project.meta(case), "it is known to be whole only with the node's files"
        lab.heal(node)
        project.wait_until(lambda case=case: project.meta(case))  # type: ignore[misc]
        record_property(f"{node} away_s", project.meta(case)["away_s"].get(node))
        record_property(f"{node} kept_s", since(project, cut_ns, "case_end", case=case))
    assert project.wait() == 0, project.log()[-3000:]
    for case in ("one", "two"):
        assert_whole(project, case, 1)
        assert len(project.attempts(case)) == 1
    assert len(events(project, "launch")) == 1, "the server went on"
    project.wait_until(lambda: nothing_runs(project))


def test_cut_for_good(lab: Lab, make: Make, record_property: Record) -> None:
    """The worker's cable is pulled for good in a case: that case fails, what was measured stays.

    Nothing goes on where it can be ended; what may go on behind the cut is named, with its end.
    """
    project = make(small(lab, "one", "two", lost_node_s=6, lease_ttl_s=12))
    project.start(TARGET)
    project.wait_until(lambda: project.meta("one"))
    in_case(project, "two")
    cut_ns = time.time_ns()
    lab.cut("worker")
    assert project.wait() == 0, "the campaign itself goes on"
    said = assert_failed(project, "two", 1)
    assert project.meta("two")["cause"] == "unreachable"
    assert "node worker could not be reached for" in said
    assert "see that the node and the network run, then start the campaign again" in said
    assert "may still run on node worker; what a load started ends by itself" in said
    assert "its raw files stayed on node worker, in /home/bench/" in said
    assert_whole(project, "one", 1)
    record_property("noticed_s", since(project, cut_ns, "link_lost", node="worker"))
    record_property("recorded_s", since(project, cut_ns, "case_end"))
    record_property("ended_s", since(project, cut_ns, "session_end"))
    project.wait_until(lambda: not running(lab, "head"))
    assert "node worker: its lease was not given back" in project.log()
    assert "[2/2] baseline/two r1: failed: node worker could not be reached" in project.log()
    assert "what still runs there ends by itself" in project.log()
    assert since(project, cut_ns, "rank_left", node="worker", lease_ttl_s=12)

    lab.heal("worker")
    assert_resumes(project, kept="one", again="two")


# Power.


def test_worker_off_and_on_in_a_case(lab: Lab, make: Make, record_property: Record) -> None:
    """The worker loses its power in a case and boots again: its rank is gone, so the case fails.

    The node is met again as another boot, the server is started anew, and the next case counts.
    """
    project = make(small(lab, "one", "two", "three", lost_node_s=30))
    project.start(TARGET)
    project.wait_until(lambda: project.meta("one"))
    in_case(project, "two")
    off_ns = time.time_ns()
    lab.power_off("worker")
    lab.power_on("worker")
    assert project.wait() == 0, project.log()[-3000:]
    said = assert_failed(project, "two", 1)
    assert "the machine was restarted, and the server ended with it (node worker)" in said
    record_property("noticed_s", since(project, off_ns, "link_lost", node="worker"))
    record_property("recorded_s", since(project, off_ns, "case_end", case="two"))
    record_property("measures_again_s", since(project, off_ns, "launch"))
    assert_whole(project, "one", 1)
    assert_whole(project, "three", 1)
    assert len(events(project, "launch")) == 2
    assert_resumes(project, kept="one", again="two")


def test_head_off_then_back(lab: Lab, make: Make, record_property: Record) -> None:
    """The head, with server and load, loses its power in a case; it is back after the campaign."""
    project = make(small(lab, "one", "two", lost_node_s=6, lease_ttl_s=12))
    project.start(TARGET)
    project.wait_until(lambda: project.meta("one"))
    in_case(project, "two")
    off_ns = time.time_ns()
    lab.power_off("head")
    assert project.wait() == 0, "the campaign itself goes on"
    said = assert_failed(project, "two", 1)
    assert "node head could not be reached for" in said
    assert "the load client" in said
    assert project.meta("two")["cause"] == "unreachable"
    record_property("noticed_s", since(project, off_ns, "link_lost", node="head"))
    record_property("recorded_s", since(project, off_ns, "case_end", case="two"))
    record_property("ended_s", since(project, off_ns, "session_end"))
    assert_whole(project, "one", 1)
    project.wait_until(lambda: not running(lab, "worker"))
    lab.power_on("head")
    assert_resumes(project, kept="one", again="two")


# A machine in between.


NOTICE = """
import json, sys, time
from servemap.model.errors import ConnectionLostError
from servemap.model.server_spec import NodeSpec
from servemap.nodes.ssh import SshNode

node = SshNode(NodeSpec(**json.loads(sys.argv[1])))
node.state_dir()
print("connected", flush=True)
try:
    node.run(["sleep", "60"], timeout_s=240)
except ConnectionLostError as error:
    print(json.dumps({"t_ns": time.time_ns(), "what": error.what, "where": error.where}))
"""


def test_worker_through_the_head(lab: Lab, make: Make, record_property: Record) -> None:
    """The worker is reached through the head: a campaign runs, and a cut is noticed as well."""
    data = small(lab, "one")
    for node in data["nodes"]:
        if node["id"] == "worker":
            node["jump"] = f"{BENCH.name}@{lab.machines['head'].address}"
    project = make(data)
    sshd_log = lab.path("worker", "/var/log/sshd.log")
    sshd_log.write_text("")
    run = project.snakemake(TARGET)
    assert run.code == 0, run.text[-3000:]
    assert_whole(project, "one", 1)
    logins = [line for line in sshd_log.read_text().splitlines() if "Accepted publickey" in line]
    assert logins
    assert all(f"from {lab.machines['head'].address} " in line for line in logins)
    project.wait_until(lambda: nothing_runs(project))

    client = subprocess.Popen(
        lab.controller_argv([sys.executable, "-c", NOTICE, json.dumps(worker_of(data))]),
        env=project.env, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    project.started.append(client)
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    time.sleep(1)
    cut_ns = time.time_ns()
    lab.cut("worker")
    lost = json.loads(client.communicate(timeout=240)[0])
    record_property("noticed_s", (lost["t_ns"] - cut_ns) / 1e9)
    assert lost["what"].startswith("the connection was lost: ")
    assert "node worker" in lost["where"]
    lab.heal("worker")
    project.wait_until(lambda: nothing_runs(project))
