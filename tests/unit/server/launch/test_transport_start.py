"""A start whose NCCL took another path is stopped before any case; the paths are recorded.

Simulated: the server only pretends to run, and its log is made up.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Effective
from servemap.server.context import Context
from servemap.server.gates.checks import Check, GateResult
from servemap.server.launch import admit, boots, start
from servemap.server.launch import stage as launch
from servemap.server.launch.ensure import ensure_server
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, campaign, fake_context

LOG = (
    "INFO: hello\n"
    "gpu-a:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {path}\n"
    "gpu-a:101:201 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via {path}\n"
)


@pytest.fixture(autouse=True)
def _answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(admit, "check_ready", lambda *args: Check("completion", True, "token"))
    monkeypatch.setattr(admit, "run_gates", lambda *args: GateResult([], Effective()))
    monkeypatch.setattr(admit, "read_back", lambda *args: [])
    monkeypatch.setattr(start, "require_clean", lambda *args: None)
    monkeypatch.setattr(admit, "only_ours", lambda *args: [])


def context(node: FakeNode, path: str, required: dict[str, Any] | None) -> Context:
    node.server_log = LOG.format(path=path)
    server = {"engine": "vllm", "port": 18999, "topology": {"tp": 2}, "python": "/opt/python",
              "env": {"NCCL_P2P_DISABLE": "1"}, "transport": required}  # fmt: skip
    return fake_context(node, campaign(server=server))


def gate_file(found: Context) -> dict[str, Any]:
    boot = boots.read_boots(found.run_dir, "baseline")[-1]
    path = boots.boot_dir(found.run_dir, "baseline", boot.boot_id) / "gate.json"
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def check_of(gate: dict[str, Any]) -> dict[str, Any]:
    (check,) = [one for one in gate["checks"] if one["name"] == "transport"]
    return dict(check)


def test_a_start_on_another_path_fails_and_is_stopped() -> None:
    node = FakeNode()
    found = context(node, "SHM/direct/direct", {"intra": "P2P"})
    with pytest.raises(NotRunError) as caught:
        ensure_server(found, "baseline")
    assert caught.value.what.startswith("transport: n1: 2 connections within nodes are SHM/direct")
    assert "NCCL_P2P_DISABLE=1" in caught.value.remedy
    assert node.server not in node.living
    assert boots.read_boots(found.run_dir, "baseline")[-1].status == "failed"
    assert check_of(gate_file(found))["ok"] is False


def test_a_start_on_the_required_path_is_recorded_with_it(tmp_path: Path) -> None:
    found = context(FakeNode(), "P2P/CUMEM", {"intra": "P2P"})
    launch.launch_variant(found, "baseline", 1, tmp_path / "launch.json")
    record = json.loads((tmp_path / "launch.json").read_text())
    assert record["status"] == "ok"
    assert record["spec"]["server"]["transport"]["intra"] == "P2P"
    assert check_of(record["gate"])["ok"] is True
    assert record["gate"]["transport"]["paths"][0]["path"] == "P2P/CUMEM"


def test_without_a_requirement_the_paths_are_recorded_all_the_same() -> None:
    found = context(FakeNode(), "SHM/direct/direct", None)
    ensure_server(found, "baseline")
    gate = gate_file(found)
    assert check_of(gate)["ok"] is None
    assert check_of(gate)["evidence"].startswith("n/a: server.transport requires no path")
    assert gate["transport"]["paths"][0]["path"] == "SHM/direct"


def test_an_engine_without_nccl_has_no_such_gate() -> None:
    found = fake_context(FakeNode(), campaign())
    ensure_server(found, "baseline")
    gate = gate_file(found)
    assert "transport" not in gate
    assert "transport" not in {check["name"] for check in gate["checks"]}
