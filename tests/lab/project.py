"""A campaign on a running lab, in a project folder of its own, driven from the lab's controller."""

import json
import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml

from tests.lab.lab import FILES, Lab
from tests.lab.traces import kill_all
from tests.workflow.harness import PLANNING, Project, copy_workflow

TEMPLATE = Path(__file__).with_name("campaign.yaml")


def campaign(lab: Lab) -> dict[str, Any]:
    """Return the campaign file for a lab, filled in."""
    values = {
        "head": lab.machines["head"].address,
        "worker": lab.machines["worker"].address,
        "key_file": lab.key_file,
        "known_hosts": lab.known_hosts,
        "python": f"{sys.prefix}/bin/python",
        "files": FILES,
    }
    return dict(yaml.safe_load(string.Template(TEMPLATE.read_text()).substitute(values)))


def make_seed(folder: Path) -> Path:
    """Write the embedded engine and its model, for `Lab(seed=...)`; return the folder."""
    argv = [sys.executable, "-m", "servemap", "embedded", str(folder)]
    subprocess.run(argv, check=True, capture_output=True)
    return folder


class LabProject(Project):
    """A project whose Snakemake runs in the controller's network with the cluster profile.

    `start` and `snakemake` run it; the results lie here, whatever happens to the lab.
    """

    def __init__(self, folder: Path, lab: Lab) -> None:
        super().__init__(folder, port=18080)
        self.lab = lab

    @classmethod
    def on(cls, lab: Lab, folder: Path) -> Self:
        """Make a project folder with the lab's campaign."""
        copy_workflow(folder)
        project = cls(folder, lab)
        project.write_campaign(campaign(lab))
        return project

    @property
    def results(self) -> Path:
        return self.folder / "results" / str(self.campaign()["run"])

    def command(self, *args: str) -> list[str]:
        cores = [] if args and args[0] in PLANNING else ["--cores", "2"]
        return self.lab.controller_argv(
            [
                sys.executable, "-m", "snakemake", "--profile", "cluster",
                "--configfile", "campaign.yaml", *cores, *args,
            ]
        )  # fmt: skip

    def servemap(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.lab.controller_exec(
            [sys.executable, "-m", "servemap", *args], cwd=self.folder, env=self.env
        )

    def kill_controller(self) -> None:
        """End the running Snakemake and its jobs with -9, as a crash of the controller would."""
        kill_all(self.lab.controller_processes)
        for process in self.started:
            process.wait(60)

    def wait(self, timeout: float = 600) -> int:
        """Wait for the Snakemake started last; return its exit code."""
        return self.started[-1].wait(timeout)

    def wait_until(self, condition: Callable[[], object], timeout: float = 240) -> None:
        """Wait for a condition while Snakemake runs; its log is shown where it never holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s: {self.log()[-3000:]}"
            time.sleep(0.05)

    def meta(self, case: str, repeat: int = 1, variant: str = "baseline") -> dict[str, Any]:
        """Return a repeat's meta.json; empty where there is none."""
        return self._json(self.case_folder(case, repeat, variant) / "meta.json")

    def attempts(
        self, case: str, repeat: int = 1, variant: str = "baseline"
    ) -> list[dict[str, Any]]:
        """Return the meta.json of each attempt at a repeat, the oldest first."""
        folder = self.case_folder(case, repeat, variant) / "attempts"
        return [self._json(path) for path in sorted(folder.glob("*/meta.json"))]

    def case_folder(self, case: str, repeat: int = 1, variant: str = "baseline") -> Path:
        return self.results / "cases" / variant / case / f"r{repeat}"

    def load_runs(self, node: str = "head") -> bool:
        """Say whether the load client of a case runs on a node."""
        return bool(self.lab.processes_with(node, "bench"))

    @staticmethod
    def _json(path: Path) -> dict[str, Any]:
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def clean_up(self) -> None:
        """End the controller's processes; those on the nodes end with the lab."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.kill_controller()
