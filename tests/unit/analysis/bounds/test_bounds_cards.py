"""Memory bandwidth of nodes: declared, from the cards' names, or not known."""

import pytest

from servemap.analysis.bounds.cards import card_bandwidth, card_names, rank_bandwidth
from servemap.analysis.bounds.known import NotKnownError, table

UUID = "(UUID: GPU-00000000-0000-0000-0000-000000000000)"


def facts(*names: str, extra: str = "") -> dict:
    said = "".join(f"GPU {i}: {name} {UUID}\n" for i, name in enumerate(names)) + extra
    return {"accelerators": {"tools": {"nvidia-smi -L": {"code": 0, "stdout": said}}}}


def test_names_are_those_that_nvidia_smi_lists():
    assert card_names(facts("NVIDIA H200", "NVIDIA H200")) == ["NVIDIA H200"] * 2
    with pytest.raises(NotKnownError, match="no card"):
        card_names({"accelerators": {"found": False, "tools": {}}})
    with pytest.raises(NotKnownError, match="MIG"):
        card_names(facts("NVIDIA H200", extra=f"  MIG 1g.18gb     Device  0: {UUID}\n"))


def test_a_card_has_the_figure_of_its_sheet():
    found = card_bandwidth("NVIDIA H200")
    assert found.bytes_per_s == 4.8e12
    assert found.source.startswith("NVIDIA H200, https://")
    with pytest.raises(NotKnownError, match="not in the table: NVIDIA H2000"):
        card_bandwidth("NVIDIA H2000")


def test_every_card_has_a_source():
    known = table("cards")
    assert {card["source"] for card in known["cards"].values()} == set(known["sources"])
    assert all(card["gb_s"] > 0 for card in known["cards"].values())


def test_a_rank_has_a_card():
    two = facts("NVIDIA L4", "NVIDIA L4")
    assert rank_bandwidth(["a"], 2, {}, {"a": two}).bytes_per_s == 300e9
    assert rank_bandwidth(["a", "b"], 4, {}, {"a": two, "b": two}).bytes_per_s == 300e9


@pytest.mark.parametrize(
    ("ranks", "nodes", "reason"),
    [
        (3, {"a": facts("NVIDIA L4", "NVIDIA L4")}, "2 cards for 3 ranks"),
        (2, {"a": facts("NVIDIA L4", "NVIDIA A10")}, "different cards"),
        (1, {}, "a has no frozen facts"),
        (1, {"a": {}}, "a: .*no card"),
        (3, {"a": facts("NVIDIA L4"), "b": facts("NVIDIA L4")}, "evenly"),
        (2, {"a": facts("NVIDIA L4"), "b": facts("NVIDIA A10")}, "differs"),
    ],
)
def test_bandwidth_that_is_not_known(ranks, nodes, reason):
    with pytest.raises(NotKnownError, match=reason):
        rank_bandwidth(list(nodes) or ["a"], ranks, {}, nodes)


def test_declared_bandwidth_is_of_a_card_or_of_a_node_without_cards():
    cards = {"a": {"gb_s": 100, "accelerators": 4}}
    host = {"a": {"gb_s": 100, "accelerators": 0}}
    assert rank_bandwidth(["a"], 4, cards, {}).bytes_per_s == 100e9
    assert rank_bandwidth(["a"], 4, host, {}).bytes_per_s == 25e9
