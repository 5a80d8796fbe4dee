"""The gate on real processes, and its waiting in made-up time."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import NodeError
from servemap.model.server_spec import NodeSpec
from servemap.nodes.base import Node
from servemap.nodes.local import LocalNode
from servemap.server.gates import dirty, holders
from servemap.server.gates.dirty import MEMORY_BACK_S, check_clean, wait_clean
from servemap.server.gates.holders import Card, CardProcess, Holders, look
from servemap.server.gates.ports import NodeView
from tests.fakes import FakeNode, FarNode

GB = 1_000_000_000
HERE = NodeSpec(id="n1")
CARDS = NodeSpec(id="n1", accelerators=1)


@pytest.fixture(autouse=True)
def _no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container tools of this machine are not asked; python3 may be."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.fixture(params=["here", "far"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return LocalNode("n1") if request.param == "here" else FarNode("w1", tmp_path)


class Leftover:
    """A process that carries the mark of a start that the run's folder tells of."""

    def __init__(self, workdir: Path) -> None:
        self.boot_id = str(uuid.uuid4())
        (workdir / "server").mkdir(parents=True)
        (workdir / "server" / f"{self.boot_id}.spec.json").write_text("{}")
        self.process = subprocess.Popen(
            [sys.executable, "-c", "print(1, flush=True); input()"],
            env={**os.environ, "SERVEMAP_BOOT_ID": self.boot_id},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()


@pytest.fixture
def leftover(tmp_path: Path) -> Iterator[Leftover]:
    found = Leftover(tmp_path / "work")
    yield found
    found.process.kill()
    found.process.communicate()


def test_what_is_left_of_ours_is_stopped(node: Node, leftover: Leftover, tmp_path: Path) -> None:
    workdir = str(tmp_path / "work")
    before = look(node, [workdir])
    assert before.boots[leftover.process.pid] == leftover.boot_id
    check = check_clean(before, HERE, expected_boot="another", ports=[])
    assert check.ok is False
    assert f"ours: pid {leftover.process.pid} of user" in check.evidence
    assert check_clean(before, HERE, expected_boot=leftover.boot_id, ports=[]).ok is True
    check = wait_clean(node, HERE, [workdir], ports=[], grace_s=60)
    assert check.ok is True
    assert f"stopped what was left of {leftover.boot_id}" in check.evidence
    assert leftover.process.wait(60) != 0


def test_another_runs_server_is_left_alone(node: Node, leftover: Leftover, tmp_path: Path) -> None:
    check = wait_clean(node, HERE, [str(tmp_path / "elsewhere")], ports=[], grace_s=60)
    assert check.ok is True
    assert leftover.process.poll() is None


def test_a_runtime_that_the_campaign_does_not_use_need_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty: dict[str, Any] = {"processes": [], "sockets": {}, "tcp": "", "tcp6": ""}
    found = {
        "view": empty, "cards": [], "processes": [], "failed": {"nvidia-smi": "no driver"},
        "containers_failed": {"docker": "no daemon"}, "devices": {}, "hidden": 0, "boots": {},
        "known": [], "containers": [],
    }  # fmt: skip
    monkeypatch.setattr(holders, "read_holders", lambda workdirs: found)
    assert set(look(FakeNode(), []).failed) == {"nvidia-smi", "docker"}
    assert set(look(FakeNode(), [], runtimes={"podman"}).failed) == {"nvidia-smi"}
    check = wait_clean(FakeNode(), HERE, [], ports=[], grace_s=0, runtimes=())
    assert check.ok is True, "no cards and no containers are used"
    check = wait_clean(FakeNode(), HERE, [], ports=[], grace_s=0, runtimes=("docker",))
    assert (check.ok, bool(check.remedy)) == (None, True)
    assert "docker failed: no daemon" in check.evidence


def test_a_foreign_owner_of_our_port_fails_at_once(node: Node, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check = wait_clean(
            node, HERE, [str(tmp_path)], ports=[(port, "0.0.0.0")], grace_s=5, sleep=no_sleep
        )
    assert check.ok is False
    assert f"not ours: pid {os.getpid()} of user" in check.evidence


def no_sleep(seconds: float) -> None:
    pytest.fail("nothing here is worth waiting for")


class Time:
    """Made-up time, and what a look at the node gives at each moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moments: dict[float, Holders]) -> None:
        self.now = 0.0
        self.moments = moments
        monkeypatch.setattr(dirty, "look", self.look)

    def look(self, node: Node, workdirs: Any, *, become: bool, runtimes: Any) -> Holders:
        return [holders for at, holders in self.moments.items() if at <= self.now][-1]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, grace_s: float = 10, node: Node | None = None) -> Any:
        return wait_clean(
            node or FakeNode(),
            CARDS,
            ["/w"],
            ports=[],
            grace_s=grace_s,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


def memory(used: int, **keys: Any) -> Holders:
    return Holders(NodeView("", "", {}, {}), [Card("nvidia", "0", used, 80 * GB)], **keys)


def test_memory_that_comes_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch, {0: memory(70 * GB), 12: memory(0)})
    check = time.wait()
    assert check.ok is True
    assert 12 <= time.now < 14
    assert check.evidence.startswith(f"after {time.now:.1f} s: ")


def test_memory_that_does_not_come_back_fails_with_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Time(monkeypatch, {0: memory(70 * GB)})
    check = time.wait(grace_s=10)
    assert check.ok is False
    assert 10 + MEMORY_BACK_S <= time.now < 10 + MEMORY_BACK_S + 2
    assert "nvidia card 0 holds 70.00 GB; an idle card holds at most 1.00 GB" in check.evidence


def test_ours_that_does_not_end_is_swept_once_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = memory(
        70 * GB,
        processes=[CardProcess("nvidia", "0", 7, 70 * GB, "vllm")],
        boots={7: "b1"},
        known=frozenset({"b1"}),
    )
    node = FakeNode()
    sweeps: list[list[str]] = []
    node.on_run["sweep"] = lambda argv: sweeps.append(argv) or "{}"  # type: ignore[func-returns-value]
    check = Time(monkeypatch, {0: stuck}).wait(node=node)
    assert [argv[1:4] for argv in sweeps] == [["sweep", "--boot-id", "b1"]]
    assert check.ok is False
    assert "ours: pid 7" in check.evidence
    assert "(vllm)" in check.evidence


def test_become_is_asked_of_sudo_without_a_password() -> None:
    class Sudo(FakeNode):
        here = True

        def __init__(self) -> None:
            super().__init__()
            self.argv: list[str] = []

        def run(self, argv: Any, **keys: Any) -> Any:
            self.argv = list(argv)
            done = super().run(["x", "facts"], **keys)
            return type(done)(tuple(argv), 1, "", "sudo: a password is required", 0.0)

    node = Sudo()
    with pytest.raises(NodeError, match="a password is required"):
        look(node, ["/w"], become=True)
    assert node.argv == ["sudo", "-n", "agent", "holders", "--workdir", "/w"]


@pytest.mark.parametrize("said", ["[]", "{}", "null", "Last login: today"])
def test_an_agent_that_says_something_else(said: str) -> None:
    class Chatty(FakeNode):
        here = False

    chatty = Chatty("w1")
    chatty.on_run["holders"] = lambda argv: said
    with pytest.raises(NodeError, match="w1: "):
        look(chatty, ["/w"])
