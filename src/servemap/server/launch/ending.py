"""Ending the server, whoever started it, and keeping what it said on each of its nodes."""

from servemap.model.errors import NodeError
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch import boots, process
from servemap.server.launch.logs import keep_log
from servemap.server.launch.node_gates import wait_memory_back
from servemap.server.launch.ranks import Standing, standing_and_away, stop_ranks


def finish(context: Context, ranks: Standing, status: boots.Status, reason: str) -> None:
    """Stop ranks that may still run, keep their logs, record how their start ended.

    A node that cannot be asked is noted; what is left there ends when its lease does.

    Raises:
        LaunchError: a rank does not end.
    """
    reason = redact_text(reason)
    unreached = stop_ranks(context, ranks)
    reached = {node_id: rank for node_id, rank in ranks.items() if node_id not in unreached}
    each(list(reached), lambda node_id: keep_log(context, node_id, ranks[node_id]))
    for variant, boot_id in dict.fromkeys((r.variant, r.boot_id) for r in ranks.values()):
        boots.mark_ended(context.run_dir, variant, boot_id, status, reason)
        append_event(context.run_dir, "stop", variant=variant, boot_id=boot_id, reason=reason)
    for node_id, error in unreached.items():
        _note_left(context, node_id, ranks[node_id].boot_id, error)
    for node_id, check in wait_memory_back(context, list(reached)).items():
        if check.ok is False:
            append_event(context.run_dir, "not_clean", node=node_id, evidence=check.evidence)


def _note_left(context: Context, node_id: str, boot_id: str, error: NodeError) -> None:
    append_event(
        context.run_dir,
        "rank_left",
        node=node_id,
        boot_id=boot_id,
        error=error.what,
        lease_ttl_s=context.policy.lease_ttl_s,
    )


def stop_server(context: Context, reason: str) -> bool:
    """Stop the run's server, whichever variant it is; return whether there was one.

    Raises:
        LaunchError: it does not end.
    """
    ranks, away = standing_and_away(context)
    unnamed: list[tuple[str, str, str]] = []
    for boot in _open_boots(context):
        nodes = {str(rank.get("node")) for rank in boot.ranks} & context.nodes.keys()
        for node_id in sorted(away.keys() & nodes):
            _note_left(context, node_id, boot.boot_id, away[node_id])
        unnamed += [
            (boot.variant, boot.boot_id, node_id)
            for node_id in sorted(nodes - ranks.keys() - away.keys())
        ]
    try:
        if ranks:
            finish(context, ranks, "stopped", reason)
    finally:
        each(unnamed, lambda one: _end_unnamed(context, *one))
    for variant, boot_id in {one[:2] for one in unnamed}:
        boots.mark_ended(context.run_dir, variant, boot_id, "stopped", redact_text(reason))
    return bool(ranks)


def _end_unnamed(context: Context, variant: str, boot_id: str, node_id: str) -> None:
    """End what a start of which no end is recorded left on a node whose own record of it is gone.

    Raises:
        LaunchError: it does not end.
    """
    node, workdir = context.nodes[node_id], context.workdir(node_id)
    try:
        state = process.supervisor_state(node, workdir, boot_id)
        process.sweep(node, workdir, variant, boot_id, context.policy.stop_grace_s, state)
        process.forget(node, workdir)
    except NodeError as error:
        _note_left(context, node_id, boot_id, error)


def _open_boots(context: Context) -> list[boots.Boot]:
    """Return the starts of which no end is recorded."""
    known = [
        boot for name in context.plan.variants for boot in boots.read_boots(context.run_dir, name)
    ]
    return [boot for boot in known if boot.ended_ns is None]
