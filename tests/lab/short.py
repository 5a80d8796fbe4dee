"""Short campaigns on a lab for tests of faults: what runs, what is under load, what is left."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.lab.lab import BENCH, USERS, Lab
from tests.lab.project import LabProject, campaign

STATE = ".local/state/servemap"
UNDER_LOAD_S = 1.2
T = TypeVar("T")


def short_campaign(lab: Lab, *cases: str, **policy: Any) -> dict[str, Any]:
    """The lab's campaign with short cases of one shape, and no baselines."""
    shape = {"isl": "1K", "osl": "1K", "concurrency": 2, "min_window_s": 4}
    return {
        **campaign(lab),
        "cases": [{"id": name, **shape} for name in cases],
        "baselines": [],
        "phases": [{"id": "phase1", "cases": list(cases)}],
        "policy": {
            "lease_ttl_s": 30,
            "start_timeout_s": 90,
            "on_unhealthy": "relaunch",
            "calibrate": False,
            **policy,
        },
    }


def target(case: str, name: str = "meta.json") -> str:
    """The path of a file of a case's only repeat."""
    return f"results/lab/cases/baseline/{case}/r1/{name}"


def await_it(find: Callable[[], T | None], what: str, timeout_s: float = 300) -> T:
    """Wait for something that is not empty and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.05)
    return found


def await_load(project: LabProject, case: str, timeout_s: float = 300) -> psutil.Process:
    """Wait until a case's load client on the head is well under way; return it."""

    def loading() -> psutil.Process | None:
        assert project.started[-1].poll() is None, f"Snakemake ended: {project.log()[-3000:]}"
        for client in project.lab.processes_with("head", "bench"):
            if f"/{case}/" in words(client) and age_s(client) > UNDER_LOAD_S:
                return client
        return None

    return await_it(loading, f"load of {case}", timeout_s)


def age_s(process: psutil.Process) -> float:
    """How long a process has been running."""
    return time.time() - float(process.create_time())


def words(process: psutil.Process) -> str:
    """A process' command line; empty where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def raw_on(lab: Lab, node: str, case: str, home: str = BENCH.home) -> Path:
    """The folder on a node that the newest attempt at a case writes to."""
    pattern = f"*/cases/baseline/{case}/r1/attempts/*/raw-*"
    return max(lab.path(node, f"{home}/{STATE}").glob(pattern))


def ours(lab: Lab, node: str) -> list[psutil.Process]:
    """What runs on a node for a user of the lab; connections do not count."""
    users = {user.uid for user in USERS}
    found = []
    for process in lab.processes(node):
        try:
            ended = process.status() == psutil.STATUS_ZOMBIE
            if process.uids().real in users and not process.name().startswith("sshd") and not ended:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def left(lab: Lab) -> dict[str, list[str]]:
    """Command lines of what is ours on each running node; empty where there is nothing."""
    found = {node: [words(process) for process in ours(lab, node)] for node in lab.inits}
    return {node: lines for node, lines in found.items() if lines}


def only(processes: list[psutil.Process]) -> psutil.Process:
    """The one process that was meant."""
    assert len(processes) == 1, [words(process) for process in processes]
    return processes[0]
