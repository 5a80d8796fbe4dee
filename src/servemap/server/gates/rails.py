"""The gate `rails`: the links that the campaign names are on the nodes and up."""

from collections.abc import Mapping, Sequence
from typing import Any

from servemap.model.server_spec import Rail
from servemap.server.gates.checks import Check

NAME = "rails"
UP = ("up", "unknown")
"""`unknown` is what drivers say that do not tell, such as those of tunnels (kernel, operstates)."""


def rails_there(
    rails: Mapping[str, Sequence[Rail]], facts: Mapping[str, Mapping[str, Any] | None]
) -> Check:
    """Check that each rail's interface is there and up, and its RDMA device there.

    Args:
        rails: the rails by node.
        facts: the frozen facts by node, None where there are none.

    Returns:
        a failed check that names each rail; `ok` is None where the nodes' links are not known.
    """
    wrong: list[str] = []
    silent: list[str] = []
    for node_id, of_node in rails.items():
        nics = (facts.get(node_id) or {}).get("nics")
        links = nics.get("interfaces") if isinstance(nics, dict) else None
        if not isinstance(nics, dict) or not isinstance(links, dict):
            silent += [node_id] if of_node else []
            continue
        devices = nics.get("rdma") or {}
        for rail in of_node:
            wrong += [f"{node_id}: {text}" for text in _wrong(rail, links, devices)]
    if wrong:
        return Check(
            NAME,
            False,
            "; ".join(wrong),
            "mend nodes.rails or bring the link up, then freeze anew with -f on freeze/NODE.json",
        )
    if silent:
        return Check(
            NAME,
            None,
            f"the frozen facts say nothing of the links of {', '.join(silent)}",
            "freeze anew with -f on freeze/NODE.json",
        )
    said = [
        f"{node_id} {' '.join(filter(None, (rail.netdev, rail.hca)))}"
        for node_id, of_node in rails.items()
        for rail in of_node
    ]
    return Check(NAME, True, f"up: {', '.join(said)}")


def _wrong(rail: Rail, links: Mapping[str, Any], devices: Mapping[str, Any]) -> list[str]:
    found = []
    link = links.get(rail.netdev)
    if not isinstance(link, dict):
        names = ", ".join(sorted(links)) or "none"
        found.append(f"there is no interface {rail.netdev} (there: {names})")
    elif link.get("operstate") not in UP:
        found.append(f"{rail.netdev} is {link.get('operstate') or 'in an unknown state'}")
    if rail.hca and rail.hca not in devices:
        names = ", ".join(sorted(devices)) or "none"
        found.append(f"there is no RDMA device {rail.hca} (there: {names})")
    return found
