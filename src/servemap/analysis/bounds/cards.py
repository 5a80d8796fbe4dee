"""Memory bandwidth of a server's nodes: declared in the campaign, or by the name of the cards."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from servemap.analysis.bounds.known import NotKnownError, table
from servemap.parsers.values import mapping, number, text

_LISTED = re.compile(r"^GPU \d+: (?P<name>.+?) \(UUID: [^)]*\)\s*$", re.MULTILINE)
_PART = re.compile(r"^\s+MIG ", re.MULTILINE)
GB = 1e9


class Bandwidth(NamedTuple):
    """Memory bandwidth of what one rank of a server reads from, and where the figure is from."""

    bytes_per_s: float
    source: str


def card_names(facts: Mapping[str, Any]) -> list[str]:
    """Return the names of a node's cards from its frozen facts (`nvidia-smi -L`).

    Raises:
        NotKnownError: the facts name none, or a card is partitioned.
    """
    tools = mapping(mapping(facts.get("accelerators")).get("tools"))
    said = text(mapping(tools.get("nvidia-smi -L")).get("stdout")) or ""
    names = [found["name"] for found in _LISTED.finditer(said)]
    if not names:
        raise NotKnownError("the frozen facts name no card of NVIDIA's")
    if _PART.search(said):
        raise NotKnownError("a card is partitioned (MIG)")
    return names


def card_bandwidth(name: str) -> Bandwidth:
    """Return the memory bandwidth of a card by its name.

    Raises:
        NotKnownError: the table does not have it.
    """
    known = table("cards")
    found = known["cards"].get(name)
    if found is None:
        raise NotKnownError(
            f"the card is not in the table: {name[:60]}; declare memory_bandwidth_gb_s"
        )
    return Bandwidth(found["gb_s"] * GB, f"{name}, {known['sources'][found['source']]}")


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
    return card_bandwidth(names[0])
