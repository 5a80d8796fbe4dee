"""Why a load failed, in words: what the client and the server left behind."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from servemap.measure.client import error_classes, last_words
from servemap.measure.record import Attempt
from servemap.model.errors import NodeError
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.launch.diagnosis import memory_errors, why_lost
from servemap.server.launch.ending import finish
from servemap.server.launch.ranks import REPLACED, Ask, Standing, joined, rank_down, standing
from servemap.server.launch.served import Served
from servemap.server.patience import Patience

Disturbed = Callable[[Path, Mapping[str, Any]], list[str]]
"""Says in words how a load was disturbed, from an attempt's raw folder and its facts.

It is handed in, since it judges by the checks of the verdict, which measuring does not know.
"""

NO_SUCCESS = "no request succeeded"
DISK_S = 20.0
FULL_KIB = 1024
"""Less room than this, and a disk is said to be full."""
# A line of POSIX `df -Pk`: size, used, available, share.
DF_LINE = re.compile(r"\s\d+\s+\d+\s+(?P<available>-?\d+)\s+\d+%\s")


def server_down(context: Context, variant: str, served: Served, patience: Patience) -> str | None:
    """Return in words which rank of a server does not run; None if all do or none is known.

    A node that is away for the moment says nothing; an attached server always runs.

    Raises:
        UnreachableError: a node was away for too long.
    """
    return _ask_ranks(context, variant, served, patience.ask)


def server_down_for_sure(
    context: Context, variant: str, served: Served, patience: Patience
) -> str | None:
    """Return the same, waiting for nodes that are away."""
    return _ask_ranks(context, variant, served, patience.insist)


def _ask_ranks(
    context: Context,
    variant: str,
    served: Served,
    ask: Ask,
) -> str | None:
    boot_id = served.boot_id
    if boot_id is None:
        return None
    said = each(
        context.plan.nodes_of(variant),
        lambda node_id: ask(context.nodes[node_id], lambda: rank_down(context, node_id, boot_id)),
    )
    return joined(said.values())


def client_reasons(
    attempt: Attempt, result: dict[str, Any] | None, foreign: str | None
) -> list[str]:
    """Return how the client failed its load.

    Args:
        attempt: with the client's log.
        result: the client's own record.
        foreign: why the record that was found is not of this load (see `client.why_foreign`).
    """
    if result is None:
        said = last_words(attempt.raw)
        words = f": {said}" if said else ""
        none = foreign or "the load client left no record"
        return [f"{none}{words}; see {attempt.raw / 'client.log'}"]
    reasons = list(result.get("reasons", [])) if result.get("status") != "ok" else []
    if "client" in result and result.get("counts") is None:
        # A client of others that did not come so far that its requests could be counted.
        return reasons
    if not (result.get("counts") or {}).get("ok"):
        classes = result["errors"] if "client" in result else error_classes(attempt.raw)
        named = ", ".join(f"{count} x {name}" for name, count in sorted(classes.items()))
        reasons.append(f"{NO_SUCCESS} ({named or 'none was answered'})")
    return reasons


def server_reasons(
    context: Context,
    variant: str,
    attempt: Attempt,
    served: Served,
    result: dict[str, Any] | None,
    patience: Patience,
) -> list[str]:
    """Return how the server failed the load; it is ended after an out-of-memory error.

    A client may be told of that error, or only the server's log.

    `result` is the client's record, its times on the head's clock.

    Raises:
        UnreachableError: one of its nodes was away for too long.
    """
    boot_id = served.boot_id
    if boot_id is None:
        return []
    down = server_down_for_sure(context, variant, served, patience)
    ranks = {n: rank for n, rank in standing(context, ()).items() if rank.boot_id == boot_id}
    if down is not None:
        if not ranks:
            return [f"{REPLACED} during the case"]
        if _outlived(context, ranks, result):
            return []
        reasons = [f"{down} during the case", *why_lost(context, variant, ranks)]
        finish(context, ranks, "died", "; ".join(reasons))
        return reasons
    said = memory_errors(context, variant, ranks) if _any_failed(result) else []
    if said or error_classes(attempt.raw).get("oom"):
        finish(context, ranks, "stopped", "it ran out of memory; a new one serves what follows")
        return said
    # It may be about to end, which the next case notices; what it said belongs to this one.
    return why_lost(context, variant, ranks) if _any_failed(result) else []


def undisturbed(_raw: Path, _facts: Mapping[str, Any]) -> list[str]:
    """Return no disturbance: whoever measures without a judge believes every load."""
    return []


def full_disks(
    context: Context, names: Collection[str], place: Callable[[str], str] | None = None
) -> list[str]:
    """Return which nodes have no room left where a load writes: what is full can often not say so.

    A node that gives no answer now says nothing. `place` gives the folder on a node; without it
    that is the run's.
    """

    def look(name: str) -> str | None:
        folder = place(name) if place else context.on_node(name, context.run_dir)
        try:
            said = context.nodes[name].run(["df", "-Pk", "--", folder], timeout_s=DISK_S).stdout
        except NodeError:
            return None
        found = DF_LINE.search(said)
        if found is None or int(found["available"]) >= FULL_KIB:
            return None
        return f"the disk of node {name} is full: {found['available']} KiB are left for {folder}"

    return [text for text in each(list(names), look).values() if text]


def _any_failed(result: dict[str, Any] | None) -> bool:
    counts = (result or {}).get("counts") or {}
    return not counts.get("sent") or counts.get("ok") != counts["sent"]


def _outlived(context: Context, ranks: Standing, result: dict[str, Any] | None) -> bool:
    """Whether the server ended only after the client was done, as after a controller's death.

    The times alone do not tell: a client that is refused by a dead server is done sooner than the
    supervisor has noted the death. A request that failed is taken as a sign of it.
    """
    if result is None or not result.get("ended_ns") or _any_failed(result):
        return False
    states = [
        process.supervisor_state(context.nodes[node_id], context.workdir(node_id), rank.boot_id)
        for node_id, rank in ranks.items()
    ]
    ends = [int(state["ended_ns"]) for state in states if state.get("ended_ns")]
    return bool(ends) and min(ends) > int(result["ended_ns"])
