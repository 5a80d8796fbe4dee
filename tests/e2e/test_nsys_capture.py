"""Captures by the real Nsight Systems of the embedded engine: no card, so the host alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.analysis.captures import analyse_capture
from servemap.engines.embedded.tiny_model import install
from servemap.measure.capture import run_capture
from servemap.measure.setup import load_context
from servemap.server.context import Context
from servemap.server.launch import boots
from servemap.server.launch.ranks import standing
from tests.e2e.started import begun, marked, start_ids
from tests.fakes import campaign
from tests.nsys_shim import Shim
from tests.parts import need
from tests.workflow.harness import free_port

pytestmark = pytest.mark.e2e
pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")


@pytest.fixture
def program(here: None) -> Iterator[str]:
    found = need("nsys")
    before = agents()
    yield found
    left = [one for one in agents() if one not in before]
    for one in left:
        one.kill()
    assert left == [], "sessions outlive the campaign"


def agents() -> list[psutil.Process]:
    """The processes that hold sessions of nsys."""
    return [
        one
        for one in psutil.process_iter(["cmdline"])
        if "--start-agent" in (one.info["cmdline"] or [])
    ]


def profiled_starts(context: Context) -> set[str]:
    """Ids of the starts for captures."""
    return {boot.boot_id for boot in boots.read_boots(context.run_dir, "baseline.profiled")}


def asked(tmp_path: Path, program: str, **more: Any) -> Context:
    install(tmp_path)
    capture = {"case": "c", "kind": "nsys", "seconds": 1.0, "program": program, **more}
    return load_context(
        campaign(
            nodes=[{"id": "n1"}],
            model={
                "name": "tiny", "path": str(tmp_path / "tiny.gguf"), "context": 2048,
                "vocab": [300, 1000],
            },
            server={
                "engine": "llamacpp", "port": free_port(), "cwd": str(tmp_path / "engine"),
                "settings": {"max_active": 2}, "args": {"n_threads": 1},
            },
            variables=[], variants=[{"id": "baseline"}], baselines=[],
            cases=[{"id": "c", "isl": 32, "osl": 16, "concurrency": 1, "num_prompts": 4}],
            phases=[{"id": "phase1", "captures": [capture]}],
        )
    )  # fmt: skip


def captured(context: Context) -> dict[str, Any]:
    output = context.run_dir / "captures/baseline/c/capture.json"
    return run_capture(context, "baseline", "c", 1, output)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("here")
def test_a_stand_in_is_called_one_and_captures_share_a_start(tmp_path: Path) -> None:
    shim = Shim(tmp_path)
    context = asked(tmp_path, shim.program)
    with begun(context):
        record = captured(context)
        assert (record["status"], record["reasons"]) == ("ok", [])
        assert record["simulated"] is True
        assert record["traced"] == ["cuda", "nvtx", "osrt"]
        assert {"n1/rank0.nsys-rep", "n1/rank0.sqlite"} <= set(record["files"])
        assert list(shim.sessions.values()) == ["Launched"]
        shim.will(export="Exportation error: damaged")
        again = captured(context)
    assert again["server"]["boot_id"] == record["server"]["boot_id"]
    assert again["status"] == "failed"
    assert again["reasons"] == ["node n1: nsys export failed: Exportation error: damaged"]
    assert again["nsys"]["n1"]["state"] == "collected"
    assert again["nsys"]["n1"]["problem"]["state"] == "exported"
    assert "n1/rank0.nsys-rep" in again["files"], "the report is kept"
    assert shim.sessions == {}, "it ended with the server"
    launches = [
        call for call in shim.calls if call[:1] == ["launch"] and call != ["launch", "--help"]
    ]
    assert len(launches) == 1


@pytest.mark.usefixtures("here")
def test_a_session_that_refuses_fails_the_capture_and_nothing_else(tmp_path: Path) -> None:
    shim = Shim(tmp_path, start="Configuring is not allowed in this state.")
    context = asked(tmp_path, shim.program)
    with begun(context):
        record = captured(context)
    assert record["status"] == "failed"
    said = "node n1: nsys start failed: Configuring is not allowed in this state."
    assert said in record["reasons"]
    assert record["window"]["start_ns"] is None
    assert shim.sessions == {}


@pytest.mark.usefixtures("here")
def test_a_server_that_dies_is_put_away_and_the_next_capture_has_a_new_one(tmp_path: Path) -> None:
    shim = Shim(tmp_path, kills=True)
    context = asked(tmp_path, shim.program)
    with begun(context):
        record = captured(context)
        assert record["status"] == "failed"
        assert any(reason.endswith("during the capture") for reason in record["reasons"])
        assert standing(context, ()) == {}, "else the next job finds it, and may end the campaign"
        shim.will(kills=False)
        again = captured(context)
    assert (again["status"], again["reasons"]) == ("ok", [])
    assert again["server"]["boot_id"] != record["server"]["boot_id"]
    tries = context.run_dir / "captures/raw/baseline/c"
    assert sorted(path.name for path in tries.iterdir()) == ["001", "002"]


@pytest.mark.usefixtures("here")
def test_a_tool_that_is_too_old_fails_before_anything_is_started(tmp_path: Path) -> None:
    shim = Shim(tmp_path, version="2021.3.1")
    context = asked(tmp_path, shim.program)
    with begun(context):
        record = captured(context)
    assert record["status"] == "failed"
    assert "2021.3.1 is older than 2022.4" in record["reasons"][0]
    assert start_ids(context) | profiled_starts(context) == set()


def test_a_capture_from_launch_to_analysis(tmp_path: Path, program: str) -> None:
    context = asked(tmp_path, program)
    output = context.run_dir / "captures/baseline/c/capture.json"
    with begun(context):
        record = run_capture(context, "baseline", "c", 1, output)
        held = [" ".join(one.cmdline()) for one in marked(profiled_starts(context))]
    assert record["reasons"] == []
    assert record["status"] == "ok" and "simulated" not in record
    assert set(record["nsys"]) == {"n1"}
    for name, one in record["nsys"].items():
        assert one["state"] == "exported" and one["problem"] is None
        assert list(one["reached"]) == [
            *("checked", "launched", "started", "stopped", "collected", "exported"),
        ]
        assert any(f"--session-name={one['session']} " in line for line in held), (
            "the session stands for the next capture"
        )
        rank = one["rank"]
        assert {f"{name}/rank{rank}.nsys-rep", f"{name}/rank{rank}.sqlite"} <= set(record["files"])
    assert "osrt" in record["traced"]
    window = record["window"]
    assert window["end_ns"] - window["start_ns"] > 0
    assert window["start_spread_ns"] >= 0
    assert record["load"]["counts"]["ok"] > 0
    analysis = analyse_capture(output, output.with_name("analysis.json"), 1)
    assert analysis["status"] == "ok", analysis.get("reasons")
