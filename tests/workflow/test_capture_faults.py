"""A campaign with a capture that is broken, by Snakemake: what the same command does next.

The server is a stand-in (`tests/e2e/kineto_server.py`), whose profiles are `simulated`.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kineto_server import install
from tests.workflow.harness import Project, copy_workflow, free_port, small_campaign

pytestmark = pytest.mark.timeout(300)
WAIT_S = 120.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    copy_workflow(tmp_path / "project")
    found = Project(tmp_path / "project", free_port())
    yield found
    found.clean_up()


def standin(project: Project, **env: str) -> Path:
    """Write its campaign, one case and its capture; return the file that makes its fault happen."""
    once = project.folder / "once"
    once.touch()
    model = project.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    project.write_campaign(
        {
            **small_campaign(project.port),
            "model": {"name": "tiny", "path": "model", "context": 2048, "vocab": [300, 1000]},
            "server": {
                "engine": "vllm",
                "port": project.port,
                "python": sys.executable,
                "package": {"name": "vllm", "root": str(install(project.folder / "engine"))},
                "topology": {"tp": 2},
                "env": {**env, "KINETO_FAULT_ONCE": str(once)},
            },
            "variables": [],
            "variants": [{"id": "baseline"}],
            "cases": [{"id": "c", "isl": 64, "osl": 32, "concurrency": 2, "num_prompts": 4}],
            "baselines": [],
            "phases": [{"id": "phase1", "cases": ["c"], "captures": [{"case": "c"}]}],
            "collectors": {"proc": {"interval_s": 0.1}, "engine_metrics": {"enabled": False}},
        }
    )
    return once


def record(project: Project) -> dict[str, Any]:
    path = project.results / "captures/baseline/c/capture.json"
    return dict(json.loads(path.read_text()))


def tries(project: Project) -> list[Path]:
    return sorted(project.results.glob("captures/raw/baseline/c/*/meta.json"))


def attempts(project: Project) -> int:
    return len(list(project.results.glob("cases/baseline/c/r1/attempts/*")))


def running(project: Project) -> list[str]:
    """Processes of this project's state folder, such as its server and its load client."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(project.state).encode() in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def test_a_controller_that_is_killed_in_a_capture_resumes_with_it(project: Project) -> None:
    once = standin(project, KINETO_FAULT="never")
    controller = project.start()
    deadline = time.monotonic() + WAIT_S
    while once.exists():
        assert controller.poll() is None, project.log()[-3000:]
        assert time.monotonic() < deadline, project.log()[-3000:]
        time.sleep(0.05)
    controller.kill()
    controller.wait()
    run = project.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert (record(project)["status"], record(project)["reasons"]) == ("ok", [])
    assert run.cases == [], "the case that was measured before stays"
    assert (attempts(project), len(tries(project))) == (1, 1), "what was killed is no try"
    assert running(project) == []
    assert list(project.state.rglob("*.trace.json*")) == [], "no trace stays where it was written"
    assert project.snakemake().nothing


def test_a_capture_whose_server_died_is_taken_once_more(project: Project) -> None:
    standin(project, KINETO_FAULT="die")
    run = project.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert record(project)["status"] == "failed"
    assert "ended by signal 9 during the capture" in record(project)["reasons"][0]
    plan = project.servemap("plan", "--configfile", "campaign.yaml").stdout
    assert "1 to take with 1 server start of their own" in plan, plan
    run = project.snakemake()
    assert (run.jobs["capture"], run.jobs["case"], run.jobs["analyse"]) == (1, 0, 1), run.text
    assert (record(project)["status"], len(tries(project))) == ("ok", 2)
    assert attempts(project) == 1
    report = (project.results / "report.md").read_text()
    assert "baseline/c" in report.partition("## Captures")[2]
    assert project.snakemake().nothing


def test_a_server_without_the_call_is_not_asked_by_the_next_command(project: Project) -> None:
    once = standin(project, KINETO_FAULT="404")
    assert project.snakemake().code == 0
    assert "has no such call" in record(project)["reasons"][0]
    once.touch()
    assert project.snakemake().nothing
    assert len(tries(project)) == 1
