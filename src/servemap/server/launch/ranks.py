"""One server on all of its nodes: the ranks of a start, looked at and ended together."""

from collections.abc import Callable, Iterable, Mapping

from servemap.model.errors import NodeError, ServemapError
from servemap.nodes.base import Node
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch import exits, process
from servemap.server.launch.process import Running

REPLACED = "the server that was measured was stopped or replaced"

Ask = Callable[[Node, Callable[[], str | None]], str | None]
"""A way to put a question to a node that may be away for the moment."""

Standing = Mapping[str, Running]
"""{node id: the rank of ours that was started there and not stopped since}."""


def standing(context: Context, needed: Iterable[str]) -> dict[str, Running]:
    """Return the ranks of ours on all nodes of the campaign.

    Raises:
        NodeError: one of the `needed` nodes cannot be asked; others are left out.
    """
    ranks, away = standing_and_away(context)
    for node_id in needed:
        if node_id in away:
            raise away[node_id]
    return ranks


def standing_and_away(context: Context) -> tuple[dict[str, Running], dict[str, NodeError]]:
    """Return the ranks of ours on the nodes, and the nodes that cannot be asked, for any reason."""

    def look(node_id: str) -> Running | NodeError | None:
        try:
            return process.read_current(context.nodes[node_id], context.workdir(node_id))
        except NodeError as error:
            return error
        except process.DamagedRecordError as error:
            append_event(context.run_dir, "record_damaged", node=node_id, file=str(error))
            return None

    found = each(list(context.nodes), look)
    ranks = {n: one for n, one in found.items() if isinstance(one, Running)}
    return ranks, {n: one for n, one in found.items() if isinstance(one, NodeError)}


def why_down(context: Context, ranks: Standing) -> str | None:
    """Return in words which ranks do not run any more, None where all do.

    Raises:
        NodeError: one of their nodes cannot be asked.
    """
    return ranks_down(context, ranks, lambda _node, call: call())


def ranks_down(context: Context, ranks: Standing, ask: Ask) -> str | None:
    """Return the same, each node asked in the given way, such as `Patience.insist`."""
    said = each(
        list(ranks),
        lambda node_id: ask(
            context.nodes[node_id], lambda: _why_down(context, node_id, ranks[node_id])
        ),
    )
    return joined(said.values())


def _why_down(context: Context, node_id: str, rank: Running) -> str | None:
    node, workdir = context.nodes[node_id], context.workdir(node_id)
    if process.alive(node, workdir, rank):
        return None
    said = exits.why_ended(node, workdir, rank, context.policy.stop_grace_s)
    return f"{said} (node {node_id})" if len(context.nodes) > 1 else said


def joined(said: Iterable[str | None]) -> str | None:
    """Return in words how ranks ended, causes first: others often end because of a killed one."""
    ends = dict.fromkeys(text for text in said if text)

    def is_cause(text: str) -> bool:
        return exits.KILLED in text or exits.RESTARTED in text

    return "; ".join(sorted(ends, key=is_cause, reverse=True)) or None


def rank_down(context: Context, node_id: str, boot_id: str) -> str | None:
    """Return in words why the rank of a start does not run on a node; None if it does.

    Raises:
        NodeError: the node cannot be asked.
    """
    rank = process.read_running(context.nodes[node_id], context.workdir(node_id))
    if rank is None or rank.boot_id != boot_id:
        return REPLACED
    return _why_down(context, node_id, rank)


def asked_to_end(context: Context, ranks: Standing) -> bool:
    """Whether the ranks that ended were told to, or were left by their controller."""
    states = [
        process.supervisor_state(context.nodes[node_id], context.workdir(node_id), running.boot_id)
        for node_id, running in ranks.items()
    ]
    ends = [(state.get("exit") or {}).get("reason") for state in states]
    return any(ends) and all(end in (None, "lease_expired", "stopped") for end in ends)


def stop_ranks(context: Context, ranks: Standing) -> dict[str, NodeError]:
    """Stop ranks on all their nodes at once; return the nodes that could not do it.

    What is left on those ends with its lease.

    Raises:
        LaunchError: a rank does not end; the others were ended.
    """

    def stop(node_id: str) -> ServemapError | None:
        try:
            process.stop(
                context.nodes[node_id],
                context.workdir(node_id),
                ranks[node_id],
                context.policy.stop_grace_s,
            )
        except ServemapError as error:
            return error
        return None

    failed = {node_id: error for node_id, error in each(list(ranks), stop).items() if error}
    for error in failed.values():
        if not isinstance(error, NodeError):
            raise error
    return {n: error for n, error in failed.items() if isinstance(error, NodeError)}
