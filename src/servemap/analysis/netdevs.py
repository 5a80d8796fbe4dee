"""Network interfaces that a campaign declares as rails of its nodes."""

from collections.abc import Mapping
from typing import Any

from servemap.parsers.values import mapping, sequence, text


def plain_rails(meta: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the interfaces of each node's rails that have no HCA, whose counters say all.

    Args:
        meta: the record of a repeat.
    """
    spec = mapping(mapping(meta.get("spec")).get("server"))
    found: dict[str, set[str]] = {}
    for node in map(mapping, sequence(spec.get("nodes"))):
        rails = map(mapping, sequence(node.get("rails")))
        names = {text(rail.get("netdev")) for rail in rails if not rail.get("hca")}
        found[str(node.get("id"))] = {name for name in names if name}
    return found
