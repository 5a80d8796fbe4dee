"""A project folder of its own for tests that execute Snakemake against the real embedded engine."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("Snakefile", "workflow", "profiles", "config", "src", "cluster")
# Calls that run no job, as people type them: without --cores.
PLANNING = ("-n", "--lint", "--dag", "--summary", "--list-target-rules", "--report")
RULE = re.compile(r"^(?:local)?rule (\w+):$")
WILDCARDS = re.compile(r"^    wildcards: (.+)$")


def free_port() -> int:
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        return int(handle.getsockname()[1])


def small_campaign(port: int) -> dict[str, Any]:
    """Two variants, two cases, one of them twice; every window is well below a second."""
    return {
        "run": "small",
        "nodes": [{"id": "local", "role": "head", "transport": "local", "address": "127.0.0.1"}],
        "scale": {"tokens_per_k": 16},
        "model": {"name": "tiny", "path": ".demo/tiny.gguf", "context": 2048, "vocab": [300, 1000]},
        "server": {
            "engine": "llamacpp",
            "port": port,
            "package": {"name": "llamaserve", "root": ".demo/engine"},
            "settings": {"context": 4096, "max_active": 8},
            "args": {"n_threads": 1},
        },
        "variables": [{"id": "slots", "keys": ["settings.max_active"]}],
        "variants": [
            {"id": "baseline"},
            {"id": "few-slots", "variable": "slots", "set": {"settings.max_active": 2}},
        ],
        "cases": [
            {"id": "prefill", "isl": "8K", "osl": 1, "concurrency": 1, "num_prompts": 4},
            {"id": "decode", "isl": "1K", "osl": "1K", "concurrency": 4, "repeats": 2},
        ],
        "baselines": [{"id": "loopback", "kind": "tcp", "seconds": 0.1, "pings": 20}],
        "phases": [
            {"id": "phase0", "baselines": ["loopback"]},
            {"id": "phase1", "requires": ["phase0"], "cases": ["prefill"]},
            {
                "id": "phase2",
                "requires": ["phase1"],
                "cases": ["decode"],
                "captures": [{"case": "decode"}],
            },
        ],
        "collectors": {
            "proc": {"interval_s": 0.1},
            "engine_metrics": {"interval_s": 0.1},
        },
        # Tests run on loaded machines: what is checked is which jobs run, not how fast.
        "limits": {
            "client_lag_ms": 60_000,
            "client_cpu_share": 10,
            "collector_coverage": 0.01,
            "foreign_cpu_share": 1,
            "concurrency_deviation": 1,
            # In prompts of 16 tokens a first token that two of them share by chance is much.
            "cache_hit_rate": 1,
        },
        "policy": {
            "lease_ttl_s": 20,
            "start_timeout_s": 60,
            "on_unhealthy": "relaunch",
            # It takes seconds a point; tests/workflow/test_calibration.py has it.
            "calibrate": False,
        },
    }


@dataclass
class Run:
    """What one call of Snakemake did."""

    code: int
    text: str

    @property
    def jobs(self) -> Counter[str]:
        """How many jobs of each rule ran, targets left out."""
        found: Counter[str] = Counter()
        for line in self.text.splitlines():
            if match := RULE.match(line):
                found[match[1]] += 1
        return Counter({k: v for k, v in found.items() if not re.match(r"all$|phase\d$", k)})

    @property
    def cases(self) -> list[str]:
        """The repeats that were measured, in order: `variant/case/rK`."""
        found, rule = [], ""
        for line in self.text.splitlines():
            if match := RULE.match(line):
                rule = match[1]
            elif (match := WILDCARDS.match(line)) and rule == "case":
                facts = dict(item.split("=", 1) for item in match[1].split(", "))
                found.append(f"{facts['variant']}/{facts['case']}/r{facts['repeat']}")
        return found

    @property
    def nothing(self) -> bool:
        return "Nothing to be done" in self.text


def copy_workflow(folder: Path) -> None:
    """Make a project folder: what a checkout has, without tests and documents."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_symlink():
            (folder / name).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)


class Project:
    """A copy of the workflow with a campaign, a state folder and a lease folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.state = folder.parent / f"{folder.name}-state"
        self.started: list[subprocess.Popen[str]] = []

    @classmethod
    def create(cls, folder: Path, port: int) -> "Project":
        copy_workflow(folder)
        project = cls(folder, port)
        project.write_campaign(small_campaign(port))
        subprocess.run(
            [sys.executable, "-m", "servemap", "embedded", ".demo"],
            cwd=folder,
            env=project.env,
            check=True,
            capture_output=True,
        )
        return project

    def copy(self, folder: Path) -> "Project":
        """Return a copy with results and Snakemake's metadata, times kept."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Project(folder, self.port)

    @property
    def env(self) -> dict[str, str]:
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("SNAKEMAKE")},
            "PYTHONPATH": str(self.folder / "src"),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": str(self.state / "cache"),
            "SERVEMAP_LEASE_DIR": str(self.state / "lease"),
        }

    @property
    def results(self) -> Path:
        return self.folder / "results" / "small"

    def campaign(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.folder / "campaign.yaml").read_text()))

    def write_campaign(self, data: dict[str, Any]) -> None:
        (self.folder / "campaign.yaml").write_text(yaml.safe_dump(data, sort_keys=False))

    def command(self, *args: str) -> list[str]:
        return [
            sys.executable, "-m", "snakemake", "--configfile", "campaign.yaml",
            *([] if args and args[0] in PLANNING else ["--cores", "2"]),
            *args,
        ]  # fmt: skip

    def snakemake(self, *args: str, timeout: float = 600, **env: str) -> Run:
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        return Run(done.returncode, done.stdout)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "started.log").open("w"),
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A caller in the background ignores SIGINT, and its children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.started.append(process)
        return process

    def servemap(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "servemap", *args],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def wait_for(self, pattern: str, timeout: float = 120) -> Path:
        """Return the first path below results/small that a glob finds, once it is there."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = next(iter(self.results.glob(pattern)), None)
            if found is not None:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {pattern} within {timeout} s: {self.log()[-2000:]}")

    def log(self) -> str:
        path = self.folder / "started.log"
        return path.read_text() if path.exists() else ""

    def server_pids(self) -> list[int]:
        """Pids of servers that run from this project's model file, found by their arguments."""
        model = str(self.folder / ".demo" / "tiny.gguf").encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if model in words and b"llamaserve" in words:
                    found.append(int(entry.name))
        return found

    def clean_up(self) -> None:
        """End what this project started, and nothing else."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    same = (entry / "cwd").resolve().is_relative_to(self.folder)
                    state = str(self.state).encode() in (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if same or state:
                    try:
                        os.kill(int(entry.name), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
