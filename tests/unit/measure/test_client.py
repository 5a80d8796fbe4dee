"""The load client as it is watched: ended in bounded time, left alone when its controller died."""

import json
import time
from pathlib import Path

import pytest

from servemap.measure import client
from servemap.measure.client import (
    Look,
    client_result,
    error_classes,
    start_client,
    wait_client,
)
from servemap.model.errors import OrphanedError, UnreachableError
from servemap.nodes.base import ProcessId
from servemap.server import patience
from servemap.server.patience import Patience
from tests.fakes import BOOT, FakeNode
from tests.far_nodes import FlakyNode


@pytest.fixture(autouse=True)
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patience:
    for name in ("POLL_S", "FAR_POLL_S", "CONTROLLER_S", "LOOK_S", "FAR_LOOK_S"):
        monkeypatch.setattr(client, name, 0.001)
    monkeypatch.setattr(patience, "RETRY_S", 0.001)
    monkeypatch.setattr(client, "END_S", 0.05)
    return Patience(tmp_path / "run", 60)


def yes() -> bool:
    return True


def no() -> bool:
    return False


def well() -> Look:
    return Look()


def later(seconds: float = 60) -> float:
    return time.monotonic() + seconds


def test_it_is_waited_for(patient: Patience) -> None:
    node = FakeNode()
    pid = node.new_process()
    looks = iter(range(3))

    def alive(process: ProcessId) -> bool:
        return next(looks, None) is not None

    node.alive = alive  # type: ignore[method-assign]
    assert wait_client(node, pid, later(), well, yes, patient) is None
    assert node.stopped == []


def test_it_is_stopped_when_it_takes_too_long(patient: Patience) -> None:
    node = FakeNode()
    pid = node.new_process()
    assert "did not end in time" in str(wait_client(node, pid, later(-1), well, yes, patient))
    assert node.stopped == [pid]


def test_it_gets_a_moment_when_its_server_died(patient: Patience) -> None:
    node = FakeNode()
    pid = node.new_process()
    assert wait_client(node, pid, later(), lambda: Look(server_died=True), yes, patient) is None, (
        "the server's death is the reason"
    )
    assert node.stopped == [pid]


def test_it_goes_on_when_its_controller_died(patient: Patience) -> None:
    node = FakeNode()
    pid = node.new_process()
    with pytest.raises(OrphanedError):
        wait_client(node, pid, later(5), well, no, patient)
    assert node.stopped == []
    assert pid in node.living


def test_it_is_ended_when_it_cannot_be_measured_any_more(patient: Patience) -> None:
    node = FakeNode()
    pid = node.new_process()
    seen = Look(failed="a required collector ended early: w/proc: killed")
    assert wait_client(node, pid, later(), lambda: seen, yes, patient) == seen.failed
    assert node.stopped == [pid]


def test_a_link_that_heals_ends_nothing(tmp_path: Path, patient: Patience) -> None:
    node = FlakyNode("w", tmp_path)
    pid = ProcessId(1, 1, BOOT)
    node.away_for(4)
    assert wait_client(node, pid, later(), well, yes, patient) is None
    assert node.lost == 4
    assert "w" in patient.away_s


def test_a_link_that_does_not_heal(tmp_path: Path) -> None:
    node = FlakyNode("w", tmp_path)
    node.away_for(10**9)
    with pytest.raises(UnreachableError, match="node w could not be reached for 0 s: no route"):
        wait_client(
            node, ProcessId(1, 1, BOOT), later(), well, yes, Patience(tmp_path / "run", 0.05)
        )
    assert node.lost > 1


def test_it_is_started_in_its_folder(tmp_path: Path) -> None:
    node = FakeNode()
    start_client(node, {"schema": 1}, f"{tmp_path}/raw", {"MARK": "m"})
    (_, argv, env) = node.spawned[0]
    assert env == {"MARK": "m"}
    assert argv == [
        "agent", "bench", "--spec", f"{tmp_path}/raw/load.json", "--out", f"{tmp_path}/raw",
    ]  # fmt: skip
    assert json.loads((tmp_path / "raw/load.json").read_text()) == {"schema": 1}


def test_results_that_are_missing_or_cut(tmp_path: Path) -> None:
    assert client_result(tmp_path) is None
    assert error_classes(tmp_path) == {}
    (tmp_path / "client.json").write_text('{"status": "o')
    assert client_result(tmp_path) is None
    lines = [
        {"warmup": True, "error": {"class": "http"}},
        {"warmup": False, "error": None},
        {"warmup": False, "error": {"class": "cut"}},
        {"warmup": False, "error": {}},
        {"error": {"class": "cut"}},
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"err')
    assert error_classes(tmp_path) == {"cut": 2}
