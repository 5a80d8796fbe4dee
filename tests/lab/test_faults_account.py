"""Machines that are set up oddly, a rank that cannot start, and patches on both nodes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from servemap.server.events import read_events
from tests.lab import faults
from tests.lab.lab import BENCH, FILES, Lab
from tests.lab.project import LabProject
from tests.lab.short import STATE, left, ours, short_campaign, target
from tests.workflow.harness import ROOT

pytestmark = pytest.mark.timeout(1200)

HOME = "/home/bench with a space"
SETTINGS = f"{FILES}/engine/llamaserve/settings.py"
PYTHON = "/opt/engine/bin/python"
CHATTER = 'echo "Welcome to $(hostname)"; printf "no newline"; echo "a complaint" >&2\n'


def make_odd(lab: Lab) -> None:
    """A talkative shell, a home with a space in its name, and a /tmp that nobody can write to."""
    for node in lab.machines:
        faults.bashrc(lab, node, BENCH, CHATTER)
        faults.set_home(lab, node, BENCH, HOME)
        faults.tmp_readonly(lab, node)


def install_python(lab: Lab, node: str, real: str) -> None:
    """Give a node the interpreter that the campaign names for the engine."""
    path = lab.path(node, PYTHON)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    path.chmod(0o755)


def patched_campaign(lab: Lab, folder: Path) -> dict[str, Any]:
    """The engine's settings patched on both nodes, and an interpreter of its own for the engine."""
    data = short_campaign(lab, "one", "two")
    shutil.copy(ROOT / "config" / "patches" / "ubatch-64.diff", folder / "ubatch-64.diff")
    patch = {
        "id": "ubatch-64",
        "kind": "diff",
        "source": "ubatch-64.diff",
        "target": SETTINGS,
        "root": f"{FILES}/engine",
        "verify": [{"marker": "N_UBATCH = 64"}],
    }
    data["server"] = {**data["server"], "python": PYTHON, "patches": [patch]}
    return data


def settings(lab: Lab) -> dict[str, str]:
    """The patched file on each node."""
    return {node: lab.path(node, SETTINGS).read_text() for node in lab.machines}


def test_odd_machines_a_rank_that_cannot_start_and_patches(lab: Lab, tmp_path: Path) -> None:
    project = LabProject.on(lab, tmp_path / "project")
    real = project.campaign()["server"]["python"]
    project.write_campaign(patched_campaign(lab, project.folder))
    originals = settings(lab)
    make_odd(lab)
    install_python(lab, "head", real)
    try:
        second_rank_that_never_starts(project)
        install_python(lab, "worker", real)
        campaign_on_odd_machines(project)
        patched_file_altered_by_somebody_else(project)
        unpatched(project, originals)
    finally:
        project.clean_up()


def second_rank_that_never_starts(project: LabProject) -> None:
    """The engine's interpreter is missing on the worker: the head's rank is stopped."""
    run = project.snakemake(target("one"))
    launch = json.loads((project.results / "server/baseline/launch.json").read_text())
    assert launch["status"] == "failed", run.text[-3000:]
    (reason,) = launch["reasons"]
    assert "(node worker)" in reason
    assert PYTHON in reason
    meta = project.meta("one")
    assert meta["status"] == "not_run"
    assert "worker" in meta["reasons"][0]
    assert "Traceback" not in run.text
    assert left(project.lab) == {}
    # It was stopped when the other could not start, not only at the end of the session.
    events = read_events(project.results)
    stop, end = (next(e for e in events if e["event"] == name) for name in ("stop", "session_end"))
    assert "(node worker)" in stop["reason"]
    assert stop["t_ns"] < end["t_ns"]


def campaign_on_odd_machines(project: LabProject) -> None:
    """The same command, once the interpreter is there: all else is odd, and nothing is lost."""
    run = project.snakemake(target("one"))
    assert run.code == 0, run.text[-3000:]
    meta = project.meta("one")
    assert (meta["status"], meta["reasons"]) == ("ok", []), meta
    raw = project.case_folder("one") / "attempts" / f"{meta['attempt']:03d}" / "raw"
    for path in (path for path in raw.rglob("*") if path.is_file()):
        assert b"Welcome" not in path.read_bytes(), path
    for node in ("head", "worker"):
        assert meta["collectors"][f"{node}/proc"]["status"] == "ok"
        assert project.lab.path(node, f"{HOME}/{STATE}").is_dir()
        # The lease found a folder besides /tmp.
        assert project.lab.path(node, "/var/tmp/servemap-lease").is_dir()
        assert not project.lab.path(node, "/tmp/servemap-lease").exists()
        record = json.loads((project.results / f"server/baseline/patches/{node}.json").read_text())
        assert record["status"] == "ok"
        (verified,) = record["patches"]["ubatch-64"]["verified"]
        assert verified["ok"] is True
    assert all("N_UBATCH = 64" in text for text in settings(project.lab).values())
    assert left(project.lab) == {}


def patched_file_altered_by_somebody_else(project: LabProject) -> None:
    """The worker's patched file is edited by hand: nothing is measured, nothing overwritten."""
    lab = project.lab
    patched = lab.path("worker", SETTINGS).read_text()
    altered = patched + "\n# a hand was here\n"
    lab.path("worker", SETTINGS).write_text(altered)
    run = project.snakemake(target("two"))
    meta = project.meta("two")
    assert meta["status"] == "not_run", run.text[-3000:]
    (reason,) = meta["reasons"]
    assert "was changed by somebody else after patch 'ubatch-64' was applied" in reason
    assert "the original is kept in" in reason
    assert f"{SETTINGS} (node worker)" in reason
    assert project.meta("one")["status"] == "ok"
    assert left(lab) == {}

    refused = project.snakemake("unpatch")
    assert refused.code == 1
    assert f"{SETTINGS} (node worker)" in refused.text
    assert lab.path("worker", SETTINGS).read_text() == altered
    lab.path("worker", SETTINGS).write_text(patched)


def unpatched(project: LabProject, originals: dict[str, str]) -> None:
    """Both nodes get back what they had."""
    run = project.snakemake("unpatch")
    assert run.code == 0, run.text[-3000:]
    assert settings(project.lab) == originals
    proof = json.loads((project.results / ".unpatched.json").read_text())
    for node in ("head", "worker"):
        assert [file["ok"] for file in proof[node]["files"]] == [True]
    assert ours(project.lab, "head") == ours(project.lab, "worker") == []
