"""Gates over the nodes of a variant: clean before and after a start, and alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.server import freeze
from servemap.server.context import Context
from servemap.server.gates.agree import nodes_agree
from servemap.server.gates.checks import Check
from servemap.server.gates.dirty import check_clean, wait_clean
from servemap.server.gates.holders import Holders, look
from servemap.server.gates.judge import Port
from servemap.server.not_run import NotRunError


def own_ports(context: Context, server: ServerSpec, node_id: str, ranks: int) -> list[Port]:
    """Return the ports that a server listens on at one of its nodes; only the head has some."""
    if node_id != context.plan.head:
        return []
    meeting = [(server.master_port, context.head_spec.address)] if ranks > 1 else []
    return [(server.port, server.bind), *meeting]


def require_clean(context: Context, variant: str, server: ServerSpec) -> None:
    """Stop what is left of earlier servers on a variant's nodes, and wait until they are clean.

    Raises:
        NotRunError: something that is not ours holds a card or a port there.
        NodeError: a node does not answer.
    """
    nodes = context.plan.nodes_of(variant)

    def clean(node_id: str) -> Check:
        return wait_clean(
            context.nodes[node_id],
            context.node_spec(node_id),
            [context.workdir(node_id)],
            ports=own_ports(context, server, node_id, len(nodes)),
            grace_s=context.policy.stop_grace_s,
        )

    for node_id, check in each(nodes, clean).items():
        if check.ok is False:
            raise NotRunError("launch", check.evidence, f"node {node_id}", check.remedy)


def holders_on(context: Context, node_ids: Sequence[str]) -> dict[str, Holders]:
    """Return what is on each node (see `dirty_holders.look`)."""
    return each(
        node_ids,
        lambda node_id: look(
            context.nodes[node_id],
            [context.workdir(node_id)],
            become=context.node_spec(node_id).become,
        ),
    )


def only_ours(
    context: Context, server: ServerSpec, boot_id: str, holders: Mapping[str, Holders]
) -> list[Check]:
    """Check that after a start nothing but that server holds cards and ports on its nodes."""
    nodes = list(holders)
    return [
        _named(
            check_clean(
                holders[node_id],
                context.node_spec(node_id),
                expected_boot=boot_id,
                ports=own_ports(context, server, node_id, len(nodes)),
            ),
            node_id,
            nodes,
        )
        for node_id in nodes
    ]


def _named(check: Check, node_id: str, nodes: Sequence[str]) -> Check:
    return replace(check, name=f"{check.name} {node_id}") if len(nodes) > 1 else check


def agreement(
    context: Context, variant: str, patches: Mapping[str, Mapping[str, Any]]
) -> list[Check]:
    """Check that the nodes of a variant are alike; nothing to check where it has one.

    Raises:
        NotRunError: they are not, and `policy.on_drift` is `refuse`.
    """
    nodes = context.plan.nodes_of(variant)
    if len(nodes) < 2:
        return []
    facts = {node_id: freeze.frozen(context, node_id) for node_id in nodes}
    check = nodes_agree(facts, {n: {"status": "ok", **record} for n, record in patches.items()})
    if check.ok is False and context.policy.on_drift == "refuse":
        raise NotRunError(
            "drift",
            f"the nodes differ where they should not: {check.evidence}",
            str(context.run_dir / "freeze"),
            f"{check.remedy}; or set policy.on_drift: mark",
        )
    if check.ok is False:
        check = replace(check, ok=None, evidence=f"marked, they differ: {check.evidence}")
    return [check]


def wait_memory_back(context: Context, node_ids: Sequence[str]) -> dict[str, Check]:
    """Wait after a stop until the cards of nodes are as they are when nothing runs on them."""
    with_cards = [node_id for node_id in node_ids if context.node_spec(node_id).accelerators]
    return each(
        with_cards,
        lambda node_id: wait_clean(
            context.nodes[node_id],
            context.node_spec(node_id),
            [context.workdir(node_id)],
            ports=[],
            grace_s=context.policy.stop_grace_s,
        ),
    )
