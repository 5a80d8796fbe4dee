"""Gates over the nodes of a variant: clean before and after a start, and alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from servemap.model.errors import LaunchError, NodeError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.server import freeze
from servemap.server.context import Context
from servemap.server.engine_facts import engine_of
from servemap.server.gates.agree import nodes_agree, one_machine
from servemap.server.gates.checks import Check
from servemap.server.gates.dirty import check_clean, wait_clean
from servemap.server.gates.holders import Holders, look
from servemap.server.gates.judge import Port
from servemap.server.gates.rails import rails_there
from servemap.server.not_run import NotRunError

MARKED = "marked, not refused: "


def own_ports(context: Context, server: ServerSpec, node_id: str, ranks: int) -> list[Port]:
    """Return the ports that a server listens on at one of its nodes; only the head has some."""
    if node_id != context.plan.head:
        return []
    meeting = [(server.master_port, context.head_spec.address)] if ranks > 1 else []
    return [(server.port, server.bind), *meeting]


def _runtimes(context: Context) -> set[str]:
    """Return the container runtimes that servers of the campaign run in."""
    servers = (context.server(variant) for variant in context.plan.variants)
    return {server.container.runtime for server in servers if server.container}


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
            runtimes=_runtimes(context),
        )

    for node_id, check in each(nodes, clean).items():
        if check.ok is False:
            raise NotRunError("launch", check.evidence, f"node {node_id}", check.remedy)


def require_empty(
    context: Context, folders: Mapping[str, Sequence[str]], ports: Mapping[str, Sequence[Port]]
) -> None:
    """Wait until nothing holds a card or a given port of some nodes; no server of ours is there.

    Args:
        context: the campaign.
        folders: {node: folders whose starts are ours, and are stopped}.
        ports: {node: ports that have to be free}.

    Raises:
        LaunchError: something that is not ours holds a card or a port there.
        NodeError: a node does not answer.
    """

    def empty(node_id: str) -> Check:
        return wait_clean(
            context.nodes[node_id],
            context.node_spec(node_id),
            [context.workdir(node_id), *folders[node_id]],
            ports=ports.get(node_id, ()),
            grace_s=context.policy.stop_grace_s,
            runtimes=_runtimes(context),
        )

    for node_id, check in each(list(folders), empty).items():
        if check.ok is False:
            raise LaunchError(check.evidence, f"node {node_id}", check.remedy)


def holders_on(context: Context, node_ids: Sequence[str]) -> dict[str, Holders]:
    """Return what is on each node (see `dirty_holders.look`)."""
    return each(
        node_ids,
        lambda node_id: look(
            context.nodes[node_id],
            [context.workdir(node_id)],
            become=context.node_spec(node_id).become,
            runtimes=_runtimes(context),
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
    """Check that the nodes of a variant are alike and have their rails, as far as it has such.

    Raises:
        NotRunError: two nodes are one machine; or a check failed and `policy.on_drift` is
            `refuse`.
    """
    nodes = context.plan.nodes_of(variant)
    facts = {node_id: freeze.frozen(context, node_id) for node_id in nodes}
    same = one_machine(facts)
    if same is not None:
        raise NotRunError(
            "drift",
            f"{same}: what is measured would not be what the campaign says",
            str(context.run_dir / "freeze"),
            "give each node the address of a machine of its own, then freeze anew with -f on "
            "freeze/NODE.json",
        )
    checks = []
    if len(nodes) > 1:
        told = {
            node_id: None if one is None else _with_engine(context, variant, node_id, one)
            for node_id, one in facts.items()
        }
        records = {node_id: {"status": "ok", **record} for node_id, record in patches.items()}
        checks.append(nodes_agree(told, records))
    if any(context.node_spec(node_id).rails for node_id in nodes):
        checks.append(rails_there({n: context.node_spec(n).rails for n in nodes}, facts))
    return [_refused_or_marked(context, check) for check in checks]


def _refused_or_marked(context: Context, check: Check) -> Check:
    """Return a check of the environment; one that failed becomes a mark, or refuses the start."""
    if check.ok is not False:
        return check
    if context.policy.on_drift == "refuse":
        raise NotRunError(
            "drift",
            f"{check.name}: {check.evidence}",
            str(context.run_dir / "freeze"),
            f"{check.remedy}; or set policy.on_drift: mark",
        )
    return replace(check, ok=None, evidence=f"{MARKED}{check.evidence}")


def marks(checks: Sequence[Check]) -> list[str]:
    """Return in words what was marked instead of refused."""
    return [
        f"{check.name}: {check.evidence.removeprefix(MARKED)}"
        for check in checks
        if check.ok is None and check.evidence.startswith(MARKED)
    ]


def _with_engine(
    context: Context, variant: str, node_id: str, facts: dict[str, Any]
) -> dict[str, Any]:
    """Return the facts of a node with what the variant's server runs there.

    What was not there when the node was frozen, or not named by the campaign, is looked at now.
    """
    engine = engine_of(context, variant, node_id, facts)
    if engine and any(part is None or "error" in part for part in engine.values()):
        engine = engine_of(context, variant, node_id, freeze.take_facts(context, node_id))
    return facts if engine is None else {**facts, "engine": engine}


def wait_memory_back(context: Context, node_ids: Sequence[str]) -> dict[str, Check]:
    """Wait after a stop until the cards of nodes are as they are when nothing runs on them."""
    with_cards = [node_id for node_id in node_ids if context.node_spec(node_id).accelerators]

    def wait(node_id: str) -> Check:
        try:
            return wait_clean(
                context.nodes[node_id],
                context.node_spec(node_id),
                [context.workdir(node_id)],
                ports=[],
                grace_s=context.policy.stop_grace_s,
                runtimes=_runtimes(context),
            )
        except NodeError as error:
            return Check("clean_node", False, f"the node cannot be asked: {error.what}")

    return each(with_cards, wait)
