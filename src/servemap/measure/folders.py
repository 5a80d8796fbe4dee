"""The raw files of an attempt on the nodes: where they are, brought here, and removed there.

On this machine the attempt's own folder is used and nothing is moved or removed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from servemap.measure.record import Attempt, close_attempt
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.base import Fetched
from servemap.nodes.parallel import each
from servemap.parsers.values import mapping, sequence, text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.patience import Patience

CLEAR_S = 60.0


def raw_on(context: Context, node_id: str, attempt: Attempt, load_id: str) -> str:
    """Return the folder on a node that a load writes to.

    On another machine each load has one of its own: where the results of an attempt were removed
    here, what its load left there must not come as that of the next attempt of the same number.
    """
    if context.nodes[node_id].here:
        return str(attempt.raw.resolve())
    return context.on_node(node_id, attempt.folder / f"raw-{load_id}")


def know_folders(context: Context, nodes: Iterable[str], patience: Patience) -> None:
    """Ask nodes where their run's folder is, once, so that `raw_on` needs no connection.

    Raises:
        UnreachableError: a node is away for too long.
    """
    each(nodes, lambda name: patience.insist(context.nodes[name], lambda: context.workdir(name)))


def bring(
    context: Context, attempt: Attempt, nodes: Sequence[str], load_id: str, patience: Patience
) -> list[str]:
    """Bring a load's raw files from its nodes; return what went wrong, a sentence a node.

    What came whole is noted in the attempt, so that it may be removed there.

    Raises:
        UnreachableError: a node is away for too long.
    """
    far = [name for name in nodes if not context.nodes[name].here]
    limit = context.policy.max_fetch_bytes

    def fetch(name: str) -> list[Fetched] | str:
        node = context.nodes[name]

        def files() -> list[Fetched]:
            folder = raw_on(context, name, attempt, load_id)
            return node.fetch(folder, attempt.raw, max_bytes=limit)

        try:
            found = patience.insist(node, files)
            if any(item.changed for item in found):
                found = patience.insist(node, files)
        except NodeError as error:
            if isinstance(error, ConnectionLostError):
                raise
            return f"the raw files of node {name} did not come whole: {error}"
        changing = [item.path for item in found if item.changed]
        if changing:
            return f"{changing[0]} on node {name} was still being written when it was fetched"
        return found

    came = each(far, fetch)
    whole = {name: found for name, found in came.items() if not isinstance(found, str)}
    known = mapping(attempt.opening().get("fetched"))
    digests = {
        name: [*sequence(known.get(name)), *(item.sha256 for item in found)]
        for name, found in whole.items()
    }
    if digests:
        attempt.note({"fetched": {**known, **digests}})
    return [found for found in came.values() if isinstance(found, str)]


def close(context: Context, attempt: Attempt, facts: dict[str, Any]) -> dict[str, Any]:
    """Close an attempt and return its record (see `record.close_attempt`).

    Then its folder is removed from the nodes whose files are all in that record.
    """
    fetched = attempt.opening().get("fetched")
    meta = close_attempt(attempt, facts)
    _clear(context, attempt, fetched, meta)
    return meta


def _clear(context: Context, attempt: Attempt, fetched: Any, meta: dict[str, Any]) -> None:
    kept = {text(mapping(facts).get("sha256")) for facts in mapping(meta.get("files")).values()}
    nodes = [
        name
        for name, digests in mapping(fetched).items()
        if name in context.nodes and set(map(str, sequence(digests))) <= kept
    ]
    each(nodes, lambda name: _remove(context, name, attempt))


def _remove(context: Context, name: str, attempt: Attempt) -> None:
    node = context.nodes[name]
    if node.here:
        return
    try:
        folder = context.on_node(name, attempt.folder)
        done = node.run(["rm", "-rf", "--", folder], timeout_s=CLEAR_S)
        problem = done.stderr.strip() if done.code else None
    except NodeError as error:
        problem = error.what
    if problem is not None:
        append_event(
            context.run_dir,
            "not_removed",
            node=name,
            attempt=str(attempt.folder),
            reason=problem,
        )


def bring_rest(context: Context, attempt: Attempt) -> list[str]:
    """Bring what a load that did not end well left on its nodes, as evidence.

    No node is waited for: what cannot be had now stays there, and is named.
    """
    opening = attempt.opening()
    load_id = text(opening.get("load_id"))
    if load_id is None:
        return []
    nodes = [name for name in mapping(opening.get("collectors")) if name in context.nodes]

    def fetch(name: str) -> list[str]:
        try:
            return bring(context, attempt, [name], load_id, Patience(context.run_dir, 0))
        except NodeError:
            return [f"its raw files stayed on node {name}{_place(context, name, attempt)}"]

    # One after the other: each notes what came in the attempt.
    return [reason for name in nodes for reason in fetch(name)]


def _place(context: Context, name: str, attempt: Attempt) -> str:
    """Return in words where they are; nothing where this process never reached the node."""
    try:
        return f", in {context.on_node(name, attempt.folder)}"
    except NodeError:
        return ""
