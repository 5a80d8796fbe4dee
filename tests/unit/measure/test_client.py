"""The load client as it is watched: ended in bounded time, left alone when its controller died."""

import json
import time
from pathlib import Path

import pytest

from servemap.measure import client
from servemap.measure.client import client_result, error_classes, start_client, wait_client
from servemap.model.errors import OrphanedError
from servemap.nodes.base import ProcessId
from tests.fakes import FakeNode


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "POLL_S", 0.001)
    monkeypatch.setattr(client, "END_S", 0.05)


def yes() -> bool:
    return True


def no() -> bool:
    return False


def later(seconds: float = 60) -> float:
    return time.monotonic() + seconds


def test_it_is_waited_for() -> None:
    node = FakeNode()
    pid = node.new_process()
    looks = iter(range(3))

    def alive(process: ProcessId) -> bool:
        return next(looks, None) is not None

    node.alive = alive  # type: ignore[method-assign]
    assert wait_client(node, pid, later(), yes, yes) is None
    assert node.stopped == []


def test_it_is_stopped_when_it_takes_too_long() -> None:
    node = FakeNode()
    pid = node.new_process()
    assert "did not end in time" in str(wait_client(node, pid, later(-1), yes, yes))
    assert node.stopped == [pid]


def test_it_gets_a_moment_when_its_server_died() -> None:
    node = FakeNode()
    pid = node.new_process()
    assert wait_client(node, pid, later(), no, yes) is None, "the server's death is the reason"
    assert node.stopped == [pid]


def test_it_goes_on_when_its_controller_died() -> None:
    node = FakeNode()
    pid = node.new_process()
    with pytest.raises(OrphanedError):
        wait_client(node, pid, later(5), yes, no)
    assert node.stopped == []
    assert pid in node.living


def test_it_is_started_with_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    start_client(node, {"schema": 1}, Path("raw"))
    (_, argv, _) = node.spawned[0]
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
