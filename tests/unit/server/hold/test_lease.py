"""The lease of a node, near or far: asked for, refused in words, taken over from the dead."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import ConnectionLostError, LockedError, NodeError
from servemap.nodes.base import Node
from servemap.nodes.identity import identify
from servemap.nodes.local import LocalNode
from servemap.onnode import hold, hold_file
from servemap.server.hold.lease import check_lease, release_lease, renew_lease, take_lease
from servemap.server.locks import describe_self, read_holder
from tests.machines import OtherMachine


@pytest.fixture(autouse=True)
def _own_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture(params=["near", "far"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    if request.param == "near":
        return LocalNode("n1")
    return OtherMachine("n1", tmp_path / "machine")


def path_of(node: Node) -> Path:
    return (
        Path(node.lease_dir if isinstance(node, OtherMachine) else os.environ["SERVEMAP_LEASE_DIR"])
        / "lease.json"
    )


def boot_of(node: Node) -> str:
    return node.boot_id if isinstance(node, OtherMachine) else hold.machine_boot_id()


def held_by(node: Node, process: subprocess.Popen[bytes], run: str, **facts: Any) -> None:
    """Let another controller of this machine hold a node."""
    me = identify(process.pid)
    assert me is not None
    record = {
        **describe_self(run=run, pid_ns=hold.pid_namespace(), ttl_s=120),
        "pid": process.pid,
        "start": me.start,
        "user": "ann",
        **facts,
    }
    path = path_of(node)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "node_boot_id": boot_of(node)}))
    hold_file.touch(str(path))


def test_taken_renewed_and_given_back(node: Node, tmp_path: Path) -> None:
    check_lease(node)
    assert not path_of(node).parent.exists()
    take_lease(node, tmp_path / "run")
    record = read_holder(path_of(node))
    assert (record["run"], record["node"]) == (str(tmp_path / "run"), "n1")
    assert (record["pid"], record["ttl_s"]) == (os.getpid(), 120)
    assert record["node_boot_id"] == boot_of(node)
    check_lease(node)
    renew_lease(node, tmp_path / "run")
    release_lease(node, tmp_path / "other-run")
    assert read_holder(path_of(node)), "another run's lease is not given back"
    release_lease(node, tmp_path / "run")
    assert not path_of(node).exists()
    release_lease(node, tmp_path / "run")


def test_nodes_of_one_machine_are_taken_by_one_controller(tmp_path: Path) -> None:
    take_lease(LocalNode("n1"), tmp_path / "run")
    take_lease(LocalNode("n2"), tmp_path / "run")
    release_lease(LocalNode("n1"), tmp_path / "run")
    release_lease(LocalNode("n2"), tmp_path / "run")


def test_a_living_holder_is_not_robbed(
    node: Node, tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    held_by(node, other, "/theirs/results/long-run", host="login1")
    for ask in (take_lease, renew_lease):
        with pytest.raises(LockedError) as caught:
            ask(node, tmp_path / "run")
    assert f"node n1 is driven by pid {other.pid} of ann on login1 since 20" in caught.value.what
    assert "run /theirs/results/long-run; renewed " in caught.value.what
    assert " s ago, stale in 1" in caught.value.what
    assert str(path_of(node)) in caught.value.where
    assert caught.value.remedy.endswith(
        "stop it on login1 from /theirs with `servemap stop long-run --after-case --reason TEXT`"
    )
    with pytest.raises(LockedError):
        check_lease(node)
    release_lease(node, Path("/theirs/results/long-run"))
    assert read_holder(path_of(node))["pid"] == other.pid


def test_a_holder_killed_on_this_machine_is_followed_at_once(
    node: Node, tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    """Only this machine can see that it is gone, also where the lease lies on another."""
    held_by(node, other, "/theirs")
    other.send_signal(signal.SIGKILL)
    other.wait()
    check_lease(node)
    take_lease(node, tmp_path / "run")
    assert read_holder(path_of(node))["pid"] == os.getpid()


@pytest.mark.parametrize("field", ["start", "boot_id", "pid_ns"])
def test_a_pid_alone_is_not_the_same_process(node: Node, tmp_path: Path, field: str) -> None:
    take_lease(node, tmp_path / "run")
    record = json.loads(path_of(node).read_text())
    value = record["start"] + 1 if field == "start" else "another"
    path_of(node).write_text(json.dumps({**record, field: value}))
    hold_file.touch(str(path_of(node)))
    release_lease(node, tmp_path / "run")
    assert path_of(node).exists()
    if field == "start":
        take_lease(node, tmp_path / "run")  # who had our pid before us is gone
    else:
        with pytest.raises(LockedError):
            take_lease(node, tmp_path / "run")


def test_a_node_that_was_started_anew_is_free(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    node = OtherMachine("n1", tmp_path / "machine")
    held_by(node, other, "/theirs")
    node.boot_id = "the next boot"
    take_lease(node, tmp_path / "run")
    assert read_holder(path_of(node))["node_boot_id"] == "the next boot"


def test_a_cut_lease_is_taken_over(node: Node, tmp_path: Path) -> None:
    path_of(node).parent.mkdir(parents=True)
    path_of(node).write_text('{"pid": 1,')
    take_lease(node, tmp_path / "run")
    assert read_holder(path_of(node))["pid"] == os.getpid()


def test_a_pipe_as_lease_is_replaced(node: Node, tmp_path: Path) -> None:
    path_of(node).parent.mkdir(parents=True)
    os.mkfifo(path_of(node))
    check_lease(node)
    take_lease(node, tmp_path / "run")
    assert read_holder(path_of(node))["pid"] == os.getpid()


@pytest.mark.parametrize("name", ["lease.json", "guard"])
def test_a_lease_that_cannot_be_kept_names_itself_and_the_way_out(
    node: Node, tmp_path: Path, name: str
) -> None:
    folder = path_of(node).parent
    (folder / name).mkdir(parents=True)
    with pytest.raises(NodeError, match="lease of node n1 cannot be kept: Is a dir") as caught:
        take_lease(node, tmp_path / "run")
    assert caught.value.where.endswith(str(path_of(node)))
    assert "SERVEMAP_LEASE_DIR" in caught.value.remedy
    assert not list(folder.glob("*.tmp"))


def test_a_stale_lease_in_a_folder_that_is_not_ours(
    tmp_path: Path, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = LocalNode("n1")
    held_by(node, other, "/theirs")
    other.kill()
    other.wait()

    def replace(source: str, target: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(LockedError, match=r"belongs to another user \(pid \d+ of ann"):
        take_lease(node, tmp_path / "run")


def test_a_pipe_as_guard_holds_nobody_up(node: Node, tmp_path: Path) -> None:
    path_of(node).parent.mkdir(parents=True)
    os.mkfifo(path_of(node).parent / "guard")
    with pytest.raises(NodeError, match="not a regular file"):
        take_lease(node, tmp_path / "run")


def test_an_agent_that_does_not_answer_is_an_error_in_words(tmp_path: Path) -> None:
    node = OtherMachine("n1", tmp_path / "machine")
    node.agent_argv = lambda *args: ["echo", "command not found"]  # type: ignore[method-assign]
    with pytest.raises(NodeError, match="cannot be asked for: command not found"):
        take_lease(node, tmp_path / "run")


def test_a_lost_connection_is_not_a_refusal(tmp_path: Path) -> None:
    node = OtherMachine("n1", tmp_path / "machine")
    node.cut = True
    with pytest.raises(ConnectionLostError):
        take_lease(node, tmp_path / "run")
