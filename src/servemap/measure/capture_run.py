"""What every capture does around its profile, whoever takes it: clocks, load, a dead server."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servemap.measure.client import END_S, MARGIN_S, Look, start_client, wait_client
from servemap.measure.clocks import Measured, read_clock
from servemap.measure.reasons import server_down_for_sure
from servemap.nodes.parallel import each
from servemap.onnode.end_loads import mark
from servemap.server.context import Context
from servemap.server.launch.diagnosis import why_lost
from servemap.server.launch.ending import finish
from servemap.server.launch.ranks import REPLACED, standing
from servemap.server.launch.served import Served
from servemap.server.locks import controller_alive
from servemap.server.patience import Patience

LOAD = "load"
"""The folder of the load's own files in that of the capture."""


def read_clocks(context: Context, names: list[str], patience: Patience) -> dict[str, Measured]:
    """Return how far the clocks of some nodes are from ours now."""

    def read(name: str) -> Measured:
        node = context.nodes[name]
        return patience.insist(node, lambda: read_clock(node))

    return each(names, read)


def load_folder(context: Context, capture: Path, load_id: str) -> str:
    """Return where the load's files are written on its node; `capture` is the folder here."""
    node = context.plan.load_node
    own = capture / (LOAD if context.nodes[node].here else f"{LOAD}-{load_id}")
    return context.on_node(node, own)


def run_load(
    context: Context,
    spec: dict[str, Any],
    folder: str,
    timeout_s: float,
    look: Callable[[], Look],
    patience: Patience,
) -> str | None:
    """Run a load; return why it was ended early, None where it ended by itself.

    Args:
        context: the campaign.
        spec: the load client's; its `load_id` marks the process.
        folder: where its files go on its node.
        timeout_s: the case's.
        look: what is looked at meanwhile.
        patience: waits for nodes that are away.
    """
    node = context.nodes[context.plan.load_node]
    env = mark(spec["load_id"], context.workdir(node.name))
    client = start_client(node, spec, folder, env)
    deadline = time.monotonic() + timeout_s + MARGIN_S
    try:
        alive = context.run_dir
        return wait_client(node, client, deadline, look, lambda: controller_alive(alive), patience)
    finally:
        if node.alive(client):
            node.stop(client, END_S)


def server_ended(context: Context, variant: str, served: Served, patience: Patience) -> list[str]:
    """Return how the server failed a capture; what ended is put away for what follows.

    Raises:
        UnreachableError: one of its nodes was away for too long.
    """
    down = server_down_for_sure(context, variant, served, patience)
    if down is None:
        return []
    ranks = {n: one for n, one in standing(context, ()).items() if one.boot_id == served.boot_id}
    if not ranks:
        return [f"{REPLACED} during the capture"]
    reasons = [f"{down} during the capture", *why_lost(context, variant, ranks)]
    finish(context, ranks, "died", "; ".join(reasons))
    return reasons
