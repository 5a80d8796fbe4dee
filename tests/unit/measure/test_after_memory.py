"""After an out-of-memory error: all ranks ended, cards seen clean, and only then a new server."""

from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Effective
from servemap.measure.reasons import server_reasons
from servemap.measure.record import Attempt
from servemap.nodes.base import Node
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.gates.checks import Check, GateResult
from servemap.server.launch import admit, boots
from servemap.server.launch import node_gates as nodes_module
from servemap.server.launch.ensure import ensure_server
from servemap.server.not_run import NotRunError
from servemap.server.patience import Patience
from tests.fakes import FakeNode, fake_context, two_nodes

MEMORY = "E ggml: failed to allocate buffer for kv cache\n"
FAILED = {"status": "failed", "counts": {"planned": 2, "sent": 2, "ok": 1, "failed": 1}}

WHOLE = {"status": "ok", "counts": {"planned": 2, "sent": 2, "ok": 2, "failed": 0}}


class Cards:
    """The cards of two nodes: which of them something still holds, and when they were looked at."""

    def __init__(self, *nodes: FakeNode) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.held: set[str] = set()
        self.looks: list[tuple[str, int, bool]] = []

    def wait_clean(self, node: Node, *_: Any, **__: Any) -> Check:
        fake = self.nodes[node.name]
        self.looks.append((node.name, fake.starts(), bool(fake.living)))
        free = node.name not in self.held
        return Check("clean", free, "free" if free else "card 0 holds 30 GB", "see who holds it")


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeNode, FakeNode]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(admit, "check_ready", lambda *_: Check("health", True, "200"))
    monkeypatch.setattr(admit, "run_gates", lambda *_: GateResult([], Effective()))
    monkeypatch.setattr(admit, "only_ours", lambda *_: [])
    monkeypatch.setattr(admit, "check_process", lambda _: Check("process", True, "runs"))
    return FakeNode("n1"), FakeNode("n2")


@pytest.fixture
def cards(nodes: tuple[FakeNode, FakeNode], monkeypatch: pytest.MonkeyPatch) -> Cards:
    made = Cards(*nodes)
    monkeypatch.setattr(nodes_module, "wait_clean", made.wait_clean)
    return made


@pytest.fixture
def context(nodes: tuple[FakeNode, FakeNode]) -> Context:
    config = two_nodes()
    for spec in config["nodes"]:
        spec["accelerators"] = 1
    return fake_context(nodes[0], config, others=[nodes[1]])


def test_a_new_server_waits_for_clean_cards_on_every_node(
    context: Context, nodes: tuple[FakeNode, FakeNode], cards: Cards, tmp_path: Path
) -> None:
    head, worker = nodes
    worker.server_log = MEMORY
    served = ensure_server(context, "baseline")
    cards.looks.clear()
    cards.held = {"n2"}
    attempt = Attempt(tmp_path / "attempt", 1)
    attempt.raw.mkdir(parents=True)
    patience = Patience(context.run_dir, 1)

    reasons = server_reasons(context, "baseline", attempt, served, FAILED, patience)
    assert reasons == [f"the server's memory was used up on n2: {MEMORY.strip()}"]
    assert not head.living, "the rank that did nothing wrong is ended as well"
    assert not worker.living
    assert sorted(cards.looks) == [("n1", 1, False), ("n2", 1, False)]
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "stopped"
    assert boots.deaths(context.run_dir, "baseline", "s1") == [], "nor does it count as a death"
    noted = [event for event in read_events(context.run_dir) if event["event"] == "not_clean"]
    assert [event["node"] for event in noted] == ["n2"]

    with pytest.raises(NotRunError, match="card 0 holds 30 GB") as caught:
        ensure_server(context, "baseline")
    assert caught.value.where == "node n2"
    assert (head.starts(), worker.starts()) == (1, 1), "nothing is started on cards that are held"

    cards.held.clear()
    cards.looks.clear()
    again = ensure_server(context, "baseline")
    assert not again.reused
    assert again.boot_id != served.boot_id
    assert sorted(cards.looks)[:2] == [("n1", 1, False), ("n2", 1, False)]
    assert (head.starts(), worker.starts()) == (2, 2)


def test_a_server_that_is_about_to_end_says_why_requests_failed(
    context: Context, nodes: tuple[FakeNode, FakeNode], cards: Cards, tmp_path: Path
) -> None:
    """Its front end answers with errors before it is gone; whether it stays is seen afterwards."""
    nodes[0].server_log = "worker 1 died unexpectedly (exit code: -9)\n"
    served = ensure_server(context, "baseline")
    attempt = Attempt(tmp_path / "attempt", 1)
    attempt.raw.mkdir(parents=True)
    patience = Patience(context.run_dir, 1)

    (said,) = server_reasons(context, "baseline", attempt, served, FAILED, patience)
    assert said.startswith("A process of the server was killed with SIGKILL")
    assert server_reasons(context, "baseline", attempt, served, WHOLE, patience) == []
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "ready"
