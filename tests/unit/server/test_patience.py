"""Calls to nodes whose connection is away for a while."""

from pathlib import Path

import pytest

from servemap.model.errors import NodeError, UnreachableError
from servemap.server import patience
from servemap.server.events import read_events
from servemap.server.patience import Patience
from tests.far_nodes import FlakyNode


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0.001)


@pytest.fixture
def node(tmp_path: Path) -> FlakyNode:
    (tmp_path / "file").write_text("text")
    return FlakyNode("w", tmp_path)


def read(node: FlakyNode, tmp_path: Path) -> str | None:
    return node.read_text(str(tmp_path / "file"))


def test_asking_gives_nothing_while_the_node_is_away(node: FlakyNode, tmp_path: Path) -> None:
    patient = Patience(tmp_path / "run", 60)
    node.away_for(2)
    answers = [patient.ask(node, lambda: read(node, tmp_path)) for _ in range(4)]
    assert answers == [None, None, "text", "text"]
    events = [(event["event"], event["node"]) for event in read_events(tmp_path / "run")]
    assert events == [("link_lost", "w"), ("link_healed", "w")], "a loss is one, however long"
    assert set(patient.away_s) == {"w"}


def test_insisting_waits_until_it_heals(node: FlakyNode, tmp_path: Path) -> None:
    patient = Patience(tmp_path / "run", 60)
    node.away_for(5)
    assert patient.insist(node, lambda: read(node, tmp_path)) == "text"
    assert node.lost == 5


def test_an_answer_of_nothing_is_an_answer(node: FlakyNode, tmp_path: Path) -> None:
    assert Patience(tmp_path, 60).insist(node, lambda: node.read_text("/no/such/file")) is None
    assert len(node.calls) == 1


@pytest.mark.parametrize("way", ["ask", "insist"])
def test_it_ends(node: FlakyNode, tmp_path: Path, way: str) -> None:
    patient = Patience(tmp_path / "run", 0.02)
    node.away_for(10**9)
    with pytest.raises(UnreachableError) as caught:
        while True:
            getattr(patient, way)(node, lambda: read(node, tmp_path))
    assert node.lost > 1
    assert caught.value.what.startswith("node w could not be reached")
    assert "no route to host" in caught.value.what
    assert "policy.lost_node_s" in caught.value.remedy


def test_without_patience_the_first_loss_is_the_last(node: FlakyNode, tmp_path: Path) -> None:
    node.away_for(1)
    with pytest.raises(UnreachableError):
        Patience(tmp_path / "run", 0).insist(node, lambda: read(node, tmp_path))
    assert node.lost == 1


def test_a_healed_link_begins_anew(node: FlakyNode, tmp_path: Path) -> None:
    """Losses do not add up: each is waited for as long as the campaign says."""
    patient = Patience(tmp_path / "run", 60)
    for _ in range(3):
        node.away_for(2)
        assert patient.insist(node, lambda: read(node, tmp_path)) == "text"
    assert len(read_events(tmp_path / "run")) == 6


def test_what_a_node_refuses_is_not_asked_again(node: FlakyNode, tmp_path: Path) -> None:
    def refuse() -> str:
        node.calls.append("refused")
        raise NodeError("disk full", "w", "free some room")

    with pytest.raises(NodeError, match="disk full"):
        Patience(tmp_path, 60).insist(node, refuse)
    assert node.calls == ["refused"]
