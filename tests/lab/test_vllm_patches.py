"""A diff and a script patch of the installed vLLM on two machines, seen from inside its processes.

Each machine has a layer of its own over this one's files, so each patches its own copy.
"""

import difflib
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded import tiny_hf
from tests.lab.lab import Lab
from tests.lab.project import LabProject
from tests.lab.test_vllm_ranks import with_vllm
from tests.parts import need

pytestmark = pytest.mark.timeout(1800)

NODES = ("head", "worker")
SCRIPT = """\
#!/usr/bin/env python3
import pathlib, sys
target = pathlib.Path(sys.argv[1])
target.write_text(target.read_text() + "\\nSERVEMAP_PATCHED = True\\n")
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    need("lab")
    need("vllm")
    tiny_hf.write_folder(tmp_path / "seed" / "tiny")
    with Lab(tmp_path / "seed") as running:
        yield running


class Patched:
    """The installed package and what the test's two patches change of it.

    `everywhere` is imported by every process of the server, `in_workers` by those that compute.
    """

    def __init__(self, project: LabProject) -> None:
        code = (
            "import importlib.util as i; print(i.find_spec('vllm').submodule_search_locations[0])"
        )
        found = subprocess.run(
            [need("vllm"), "-c", code], check=True, capture_output=True, text=True
        )
        self.package = Path(found.stdout.strip()).resolve()
        self.everywhere = self.package / "envs.py"
        self.in_workers = self.package / "v1" / "worker" / "cpu_worker.py"
        self.folder = project.folder / "patches"
        self.folder.mkdir()
        (self.folder / "mark.py").write_text(SCRIPT)
        old = self.in_workers.read_text().splitlines(keepends=True)
        name = f"vllm/{self.in_workers.relative_to(self.package)}"
        new = [*old, "\n", "SERVEMAP_DIFF = True\n"]
        diff = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
        (self.folder / "worker.diff").write_text("".join(diff))

    def specs(self) -> list[dict[str, Any]]:
        root = str(self.package)
        marks = {"mark": "SERVEMAP_PATCHED", "worker": "SERVEMAP_DIFF"}
        return [
            {
                "id": name,
                "kind": kind,
                "source": str(self.folder / source),
                "target": str(target),
                "root": root,
                "verify": [{"marker": marks[name]}],
            }
            for name, kind, source, target in (
                ("mark", "script", "mark.py", self.everywhere),
                ("worker", "diff", "worker.diff", self.in_workers),
            )
        ]

    def digests(self, lab: Lab, node: str) -> dict[str, str]:
        """What lies on a node, by the ids of the patches."""
        return {
            name: hashlib.sha256(lab.path(node, str(path)).read_bytes()).hexdigest()
            for name, path in (("mark", self.everywhere), ("worker", self.in_workers))
        }

    def hand_over(self, lab: Lab) -> None:
        """Let the user of the nodes change the package, as whoever installs it may."""
        for node in NODES:
            for path in (self.everywhere, self.in_workers):
                lab.exec_in(node, ["chown", "bench", str(path), str(path.parent)], check=True)


def launch(project: LabProject, variant: str) -> dict[str, Any]:
    path = project.results / "server" / variant / "launch.json"
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["status"] == "ok", found["reasons"]
    return found


def checks_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in found["gate"]["checks"]}


def test_patches_of_the_installed_package_on_two_machines(lab: Lab, tmp_path: Path) -> None:
    project = LabProject.on(lab, tmp_path / "project")
    patched = Patched(project)
    campaign = with_vllm(project.campaign())
    del campaign["phases"][0]["captures"]
    root = str(patched.package.parent)
    campaign["server"]["package"] = {"name": "vllm", "root": root}
    campaign["variables"] = [{"id": "code", "keys": ["patches"]}]
    campaign["variants"] = [
        {"id": "baseline"},
        {"id": "marked", "variable": "code", "set": {"patches": patched.specs()}},
    ]
    try:
        project.write_campaign(campaign)
        patched.hand_over(lab)
        before = {node: patched.digests(lab, node) for node in NODES}
        run = project.snakemake("--", "results/lab/cases/marked/c/r1/meta.json", timeout=400)
        assert run.code == 0, run.text[-3000:]
        after = {node: patched.digests(lab, node) for node in NODES}
        assert after["head"] == after["worker"] != before["head"]
        assert before["head"]["mark"] == hashlib.sha256(patched.everywhere.read_bytes()).hexdigest()

        found = launch(project, "marked")
        checks = checks_of(found)
        for node in NODES:
            for name in ("mark", "worker"):
                assert checks[f"patches.{name} {node}"]["ok"] is True, checks
        seen = found["gate"]["imports"]
        for node in NODES:
            of_file = {
                name: {one["process"] for one in seen[node] if one["sha256"] == after[node][name]}
                for name in ("mark", "worker")
            }
            assert any("Worker" in process for process in of_file["worker"]), seen[node]
            assert of_file["worker"] < of_file["mark"], "the front end computes nothing"
            assert len(of_file["mark"]) >= 2
        meta = project.meta("c", variant="marked")
        assert (meta["status"], meta["counts"]["ok"]) == ("ok", 4), meta["reasons"]

        run = project.snakemake("unpatch", timeout=120)
        assert run.code == 0, run.text[-3000:]
        assert {node: patched.digests(lab, node) for node in NODES} == before
        run = project.snakemake("--", "results/lab/cases/baseline/c/r1/meta.json", timeout=400)
        assert run.code == 0, run.text[-3000:]
        plain = launch(project, "baseline")
        assert checks_of(plain)["patches"]["evidence"] == (
            "unpatched: no patch is in place on head, worker"
        )
        assert "imports" not in plain["gate"]
        assert {node: patched.digests(lab, node) for node in NODES} == before

        run = project.snakemake("report", timeout=900)
        assert run.code == 0, run.text[-3000:]
        report = (project.results / "report.md").read_text()
        assert "as the server's processes imported them" in report
        assert after["head"]["mark"][:12] in report
    finally:
        project.clean_up()
