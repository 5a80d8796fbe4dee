"""What a dead controller left running on the nodes."""

from pathlib import Path

import pytest

from servemap.measure.setup import load_context
from servemap.nodes.base import ProcessId
from servemap.server.context import Context
from servemap.server.hold.leftover import LeftServer, NotAsked, left_running
from servemap.server.launch import process
from tests.fakes import FakeNode, campaign, fake_context
from tests.machines import OtherMachine


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return FakeNode()


@pytest.fixture
def context(node: FakeNode) -> Context:
    return fake_context(node, campaign())


def start(context: Context, node_id: str) -> process.Running:
    return process.start(
        context.nodes[node_id], context.workdir(node_id), boot_id=f"b-{node_id}", variant="few",
        fingerprint="f", port=1, argv=["server"], env={}, secrets={}, cwd=None, ttl_s=60, grace_s=1,
    )  # fmt: skip


def test_nothing_runs_where_nothing_was_started(context: Context) -> None:
    assert left_running(context) == []


def test_a_server_is_named_while_it_or_its_supervisor_lives(
    context: Context, node: FakeNode
) -> None:
    running = start(context, "n1")

    def left(pid: int) -> list[LeftServer | NotAsked]:
        return [LeftServer("n1", "few", running.boot_id, pid, running.started_ns)]

    assert left_running(context) == left(node.server.pid)
    node.living.discard(node.server)
    assert left_running(context) == left(node.supervisor.pid)
    node.living.clear()
    assert left_running(context) == []


def test_every_node_is_asked_and_one_out_of_reach_says_so(node: FakeNode, tmp_path: Path) -> None:
    nodes = [{"id": "n1", "role": "head"}, {"id": "n2", "role": "worker"}]
    context = load_context(campaign(nodes=nodes))
    far = OtherMachine("n2", tmp_path / "n2")
    far.cut = True
    context.__dict__["nodes"] = {"n1": node, "n2": far}
    start(context, "n1")
    first, second = left_running(context)
    assert isinstance(first, LeftServer)
    assert second == NotAsked("n2", "node n2 cannot be reached")


def test_a_number_that_was_given_to_another_process_is_not_ours(
    context: Context, node: FakeNode
) -> None:
    start(context, "n1")
    node.living = {ProcessId(p.pid, p.start + 1, p.boot_id) for p in node.living}
    assert left_running(context) == []
