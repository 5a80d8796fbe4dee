"""Ending what an attempt started on its nodes, now or, where a node is away, by a later session."""

from collections.abc import Collection
from typing import Any

from servemap.measure.record import Attempt
from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.base import ProcessId
from servemap.nodes.parallel import each
from servemap.parsers.values import mapping, sequence, text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.not_run import NotRunError

STOP_S = 5.0
LEFT = ".left.json"
"""In the run's folder: processes that could not be ended, as {node, what, attempt, process}."""

Piece = dict[str, Any]


def stop_load(context: Context, attempt: Attempt) -> list[str]:
    """End what an attempt's opening names, whether it still runs or not, on all nodes at once.

    A node that is away keeps no other from being ended. What may go on there is noted in the run's
    folder and ended before anything is measured on that node again; it is returned in words.
    """
    pieces = [
        {**piece, "attempt": str(attempt.folder)} for piece in _pieces(context, attempt.opening())
    ]
    left = _end(context, pieces)
    if left:
        _note(context, [*_noted(context), *left])
    return [
        f"{piece['what']} (pid {piece['process'].get('pid')}) may still run on node "
        f"{piece['node']} and ends by itself within the case's time limit"
        for piece in left
    ]


def end_left(context: Context, nodes: Collection[str]) -> None:
    """End what earlier attempts left on nodes; nothing is measured beside it.

    Raises:
        NotRunError: one of `nodes` is still away with something on it.
    """
    noted = _noted(context)
    if not noted:
        return
    left = _end(context, noted)
    _note(context, left)
    for piece in left:
        if piece["node"] in nodes:
            raise NotRunError(
                "unreachable",
                f"{piece['what']} of an earlier attempt cannot be ended: {piece['reason']}",
                f"node {piece['node']}",
                "see that the node and the network run, then start the campaign again",
            )


def noted_process(value: Any) -> ProcessId | None:
    """Return the process that a record names; None where it names none."""
    try:
        return ProcessId(**value)
    except TypeError:
        return None


def _pieces(context: Context, opening: dict[str, Any]) -> list[Piece]:
    """Return the client and the collectors of an opening, the client first."""
    found = []
    if opening.get("client"):
        node = text(opening.get("load_node")) or context.plan.load_node
        found.append({"node": node, "what": "the load client", "process": opening["client"]})
    for node, process in mapping(opening.get("collectors")).items():
        found.append({"node": node, "what": "the collectors", "process": process})
    return [piece for piece in found if noted_process(piece["process"]) is not None]


def _end(context: Context, pieces: list[Piece]) -> list[Piece]:
    """End pieces, node by node at once and each node's in order; return what may still run."""
    by_node: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_node.setdefault(piece["node"], []).append(piece)

    def end(node: str) -> list[Piece]:
        return [left for piece in by_node[node] if (left := _end_one(context, piece)) is not None]

    return [piece for left in each(list(by_node), end).values() for piece in left]


def _end_one(context: Context, piece: Piece) -> Piece | None:
    process = noted_process(piece["process"])
    node = context.nodes.get(piece["node"])
    if process is None or node is None:
        return None
    try:
        if node.stop(process, STOP_S):
            return None
        reason = "it does not end"
    except NodeError as error:
        reason = error.what if isinstance(error, ConnectionLostError) else str(error)
    append_event(context.run_dir, "not_ended", **{**piece, "reason": reason})
    return {**piece, "reason": reason}


def _noted(context: Context) -> list[Piece]:
    pieces = sequence((read_json(context.run_dir / LEFT) or {}).get("pieces"))
    return [piece for piece in map(mapping, pieces) if {"node", "what", "process"} <= piece.keys()]


def _note(context: Context, pieces: list[Piece]) -> None:
    path = context.run_dir / LEFT
    if pieces:
        write_json_atomic(path, {"pieces": pieces})
    else:
        path.unlink(missing_ok=True)
