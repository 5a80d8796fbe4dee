"""Waiting for nodes that cannot be reached for a while: a cut cable, a reboot."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from servemap.model.errors import ConnectionLostError
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.events import append_event, read_events

T = TypeVar("T")
PAUSE_S = 0.5


def patiently(
    ask: Callable[[], T],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the answer of a node, asking again while its connection is lost.

    Raises:
        ConnectionLostError: it could not be reached for `seconds`.
    """
    deadline = clock() + seconds
    while True:
        try:
            return ask()
        except ConnectionLostError:
            if clock() >= deadline:
                raise
            sleep(PAUSE_S)


def reach(context: Context, node_ids: Sequence[str]) -> None:
    """Wait until nodes can be reached, at most `policy.lost_node_s`.

    A node that was waited for in vain in this session is not waited for again.

    Raises:
        ConnectionLostError: one of them cannot be reached.
    """
    given_up = {
        str(event.get("node"))
        for event in read_events(context.run_dir)
        if event.get("event") == "node_given_up" and event.get("session") == context.session
    }

    def connect(node_id: str) -> None:
        seconds = 0.0 if node_id in given_up else context.policy.lost_node_s
        try:
            patiently(context.nodes[node_id].state_dir, seconds)
        except ConnectionLostError as error:
            if node_id not in given_up:
                append_event(
                    context.run_dir,
                    "node_given_up",
                    node=node_id,
                    session=context.session,
                    waited_s=seconds,
                    error=error.what,
                )
            raise

    away = [node_id for node_id in node_ids if not context.nodes[node_id].here]
    if away:
        each(away, connect)
