"""Memory bandwidth of a server's nodes: declared in the campaign, or by the name of the cards."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from servemap.analysis.bounds.known import NotKnownError, table
from servemap.analysis.frozen_cards import frozen_cards
from servemap.parsers.values import mapping, number

GB = 1e9


class Bandwidth(NamedTuple):
    """Memory bandwidth of what one rank of a server reads from, and where the figure is from."""

    bytes_per_s: float
    source: str


class Sheet(NamedTuple):
    """What a card can do, of its vendor's sheet; a figure that has no source is None.

    GB and GB/s are of 10^9 bytes, peaks in TFLOP/s without sparsity, `link_gb_s` is NVLink or xGMI
    of the card together in one direction, `power_w` the board's power.
    """

    name: str
    gb_s: float
    memory_gb: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    link_gb_s: float | None
    power_w: float | None
    source: str
    others: tuple[str, ...]


def card_names(facts: Mapping[str, Any]) -> list[str]:
    """Return the names of a node's cards, as the table spells them, from its frozen facts.

    Raises:
        NotKnownError: the facts name none, do not name one, or a card is partitioned.
    """
    cards = frozen_cards(facts)
    if not cards:
        raise NotKnownError("the frozen facts name no card")
    names = [_spelled(card.name) for card in cards if card.name]
    if len(names) < len(cards):
        raise NotKnownError("the frozen facts do not name every card")
    if partition := next((card.partition for card in cards if card.partition), None):
        raise NotKnownError(f"a card is partitioned ({partition})")
    return names


def sheet(name: str) -> Sheet:
    """Return the figures of a card by its name.

    Raises:
        NotKnownError: the table does not have it.
    """
    known = table("cards")
    found = known["cards"].get(name)
    if found is None:
        raise NotKnownError(
            f"the card is not in the table: {name[:60]}; declare memory_bandwidth_gb_s"
        )
    figures = {key: found.get(key) for key in Sheet._fields[1:-2]}
    others = tuple(known["sources"][key] for key in found.get("others", []))
    return Sheet(name, **figures, source=known["sources"][found["source"]], others=others)


def card_bandwidth(name: str) -> Bandwidth:
    """Return the memory bandwidth of a card by its name.

    Raises:
        NotKnownError: the table does not have it.
    """
    found = sheet(name)
    return Bandwidth(found.gb_s * GB, f"{name}, {found.source}")


def _spelled(name: str) -> str:
    """Return a card's name as the table has it."""
    known = table("cards")
    if name not in known["cards"]:
        for one in known["spellings"]:
            if found := re.search(one["pattern"], name):
                return found.expand(one["name"])
    return name


def rank_bandwidth(
    nodes: Sequence[str],
    ranks: int,
    declared: Mapping[str, Any],
    facts: Mapping[str, Mapping[str, Any]],
) -> Bandwidth:
    """Return the memory bandwidth that each rank of a server has.

    Args:
        nodes: ids of the server's nodes.
        ranks: processes that hold the model, the same number on each node.
        declared: {node: {"gb_s", "accelerators"}} of the campaign.
        facts: frozen facts by node.

    Raises:
        NotKnownError: it is not known of a node, or nodes differ.
    """
    if ranks % len(nodes):
        raise NotKnownError(f"{ranks} ranks do not lie evenly on {len(nodes)} nodes")
    found = {_of_node(node, ranks // len(nodes), declared, facts) for node in nodes}
    if len({one.bytes_per_s for one in found}) > 1:
        raise NotKnownError("the nodes' memory bandwidth differs")
    return min(found)


def _of_node(
    node: str,
    ranks: int,
    declared: Mapping[str, Any],
    facts: Mapping[str, Mapping[str, Any]],
) -> Bandwidth:
    said = mapping(declared.get(node))
    given = number(said.get("gb_s"))
    if given is not None:
        # Without accelerators the ranks of a node read from the same memory.
        shares = 1 if said.get("accelerators") else ranks
        return Bandwidth(given * GB / shares, "nodes.memory_bandwidth_gb_s of the campaign")
    if node not in facts:
        raise NotKnownError(f"{node} has no frozen facts, and no memory_bandwidth_gb_s is declared")
    try:
        names = card_names(facts[node])
    except NotKnownError as error:
        raise NotKnownError(f"{node}: {error}, and no memory_bandwidth_gb_s is declared") from error
    if len(set(names)) > 1:
        raise NotKnownError(f"{node} has different cards: {', '.join(sorted(set(names)))}"[:160])
    if ranks > len(names):
        raise NotKnownError(f"{node} has {len(names)} cards for {ranks} ranks")
    try:
        return card_bandwidth(names[0])
    except NotKnownError:
        told = frozen_cards(facts[node])[0].memory_bytes_per_s
        if told is None:
            raise
        return Bandwidth(told, f"{names[0]}, as amd-smi tells it")
