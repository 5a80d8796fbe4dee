"""Captures of a stand-in server that is really started: each fault of a profile, and what follows.

What the engine itself does is `simulated` (`tests/e2e/kineto_server.py`).
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.analysis.captures import analyse_capture
from servemap.engines.profiling import FOLDER
from servemap.measure import capture_load, capture_take
from servemap.measure.capture import run_capture
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.server.context import Context
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.ranks import standing
from tests.e2e.kineto_server import install
from tests.e2e.started import begun, marked
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
CASE: dict[str, Any] = {"id": "c", "isl": 64, "osl": 32, "concurrency": 2, "num_prompts": 4}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SERVEMAP_LEASE_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # The load would go on for a minute, and the traces be waited for, where none come.
    monkeypatch.setattr(capture_load, "LONGEST_S", 2.0)
    monkeypatch.setattr(capture_take, "PAUSE_S", 0.1)


def standin(tmp_path: Path, cwd: Path | None = None, **env: str) -> Context:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    server = {
        "engine": "vllm",
        "port": free_port(),
        "python": sys.executable,
        "package": {"name": "vllm", "root": str(install(tmp_path / "engine"))},
        "topology": {"tp": 2},
        "cwd": None if cwd is None else str(cwd),
        "env": env,
    }
    return load_context(
        campaign(
            model={"name": "tiny", "path": "model", "context": 2048, "vocab": [300, 1000]},
            server=server,
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[CASE],
            baselines=[],
            phases=[{"id": "phase1", "cases": ["c"], "captures": [{"case": "c", "num_steps": 5}]}],
            policy={"stop_grace_s": 5, "start_timeout_s": 30},
            collectors={"proc": {"interval_s": 0.1}, "engine_metrics": {"enabled": False}},
        )
    )


@pytest.fixture
def context(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Context]:
    made = standin(tmp_path, **getattr(request, "param", {}))
    with begun(made):
        yield made
        assert not Path(made.workdir("n1"), FOLDER).exists(), "no trace stays on the node"
    assert not standing(made, ())


def captured(context: Context, token: int = 1) -> dict[str, Any]:
    folder = context.run_dir / "captures/baseline/c"
    return run_capture(context, "baseline", "c", token, folder / "capture.json")


def measured(context: Context) -> dict[str, Any]:
    output = context.run_dir / "cases/baseline/c/r1/meta.json"
    return run_case(context, Job("baseline", "c", 1, 1), output)


def test_results_and_captures_never_share_a_start(context: Context) -> None:
    """Each is put off its node by the other, whatever came first."""
    plain = measured(context)
    assert (plain["status"], plain["reasons"]) == ("ok", [])
    record = captured(context)
    assert (record["status"], record["reasons"]) == ("ok", [])
    again = measured(context)
    assert (again["status"], again["reasons"]) == ("ok", [])
    fingerprints = [one["server"]["fingerprint"] for one in (plain, record, again)]
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]
    starts = boots.read_boots(context.run_dir, "baseline")
    assert len({one["server"]["boot_id"] for one in (plain, record, again)}) == 3
    assert ["--profiler-config" in " ".join(map(str, one.argv)) for one in starts] == [False] * 2
    (own,) = boots.read_boots(context.run_dir, "baseline.profiled")
    assert "--profiler-config" in own.argv


def test_both_ranks_are_analysed(context: Context) -> None:
    record = captured(context)
    assert (record["window"]["ended_by"], record["ranks"]) == ("steps", 2)
    folder = context.run_dir / "captures/baseline/c"
    said = analyse_capture(folder / "capture.json", folder / "analysis.json", 1)
    assert said["status"] == "ok", said
    assert [len(one["host_steps"]) for one in said["files"]] == [5, 5]


@pytest.mark.parametrize(
    ("context", "reasons", "cause"),
    [
        (
            {"KINETO_FAULT": "404"},
            ["the profiler was not started: HTTP status 404", "has no such call"],
            "profiler",
        ),
        ({"KINETO_FAULT": "500"}, ["the profiler was not started: HTTP status 500"], None),
        (
            {"KINETO_FAULT": "never"},
            ["0 of 2 ranks left a trace", "did not end within the load"],
            None,
        ),
        ({"KINETO_FAULT": "cut"}, ["is cut: its writer was ended, or had no room"], None),
        (
            {"KINETO_FAULT": "die"},
            ["the server was ended by signal 9 during the capture", "is cut"],
            None,
        ),
    ],
    indirect=["context"],
)
def test_a_fault_is_said_and_costs_no_case(
    context: Context, reasons: list[str], cause: str | None
) -> None:
    record = captured(context)
    assert (record["status"], record["cause"]) == ("failed", cause)
    text = "; ".join(record["reasons"])
    assert [words for words in reasons if words not in text] == [], text
    meta = measured(context)
    assert (meta["status"], meta["reasons"]) == ("ok", [])
    assert captured(context, 2)["status"] == "failed"


def test_a_server_that_died_in_a_capture_is_replaced_for_the_next_try(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    context = standin(tmp_path, KINETO_FAULT="die", KINETO_FAULT_ONCE=str(once))
    with begun(context):
        assert captured(context)["status"] == "failed"
        record = captured(context, 2)
        assert (record["status"], record["reasons"]) == ("ok", [])
        first, second = boots.read_boots(context.run_dir, "baseline.profiled")
        assert (first.status, second.status) == ("died", "ready")
        ensure_server(context, "baseline")


@pytest.mark.parametrize("after", [measured, captured])
def test_a_server_that_dies_after_its_capture_ends_no_campaign(
    context: Context, after: Callable[[Context], dict[str, Any]]
) -> None:
    """`on_unhealthy` is `abort`, which is about servers that give results."""
    assert captured(context)["status"] == "ok"
    (boot,) = boots.read_boots(context.run_dir, "baseline.profiled")
    for one in marked({boot.boot_id}):
        if "api_server" in " ".join(one.cmdline()) and "supervise" not in one.cmdline():
            one.kill()
            psutil.wait_procs([one])
    record = after(context)
    assert (record["status"], record["reasons"]) == ("ok", [])
    assert boots.read_boots(context.run_dir, "baseline.profiled")[0].status == "died"


def test_a_disk_that_is_full_where_traces_are_written(tmp_path: Path) -> None:
    need("mount")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        context = standin(tmp_path, small)
        with begun(context):
            with suppress(OSError), (small / "others").open("wb", buffering=0) as handle:
                while True:
                    handle.write(bytes(512))
            record = captured(context)
            assert record["status"] == "failed"
            assert record["reasons"][0] == "0 of 2 ranks left a trace"
            assert f"the disk of node n1 is full: 0 KiB are left for {small}" in record["reasons"]
            assert [path.name for path in small.iterdir()] == ["others"]
            assert measured(context)["status"] == "ok"
    finally:
        subprocess.run(["umount", str(small)], check=True)
