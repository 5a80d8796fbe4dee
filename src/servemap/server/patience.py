"""Calls to nodes whose connection may be away for a while: the one place that waits for them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from servemap.model.errors import ConnectionLostError, UnreachableError
from servemap.nodes.base import Node
from servemap.server.events import append_event

T = TypeVar("T")

RETRY_S = 0.5


class Patience:
    """Calls to nodes; a lost connection is an error only after `limit_s` without any answer.

    The next call connects anew, so asking again is all that heals it. Each loss and its end is an
    event of the run. May be used from several threads.

    Args:
        run_dir: the run's folder.
        limit_s: how long a node may be away.
    """

    def __init__(self, run_dir: Path, limit_s: float) -> None:
        self._run_dir = run_dir
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        self.away_s: dict[str, float] = {}

    def ask(self, node: Node, call: Callable[[], T]) -> T | None:
        """Return what a call answers; None where the connection is lost for now.

        Raises:
            UnreachableError: it has been lost for too long.
        """
        answers = self._try(node, call)
        return answers[0] if answers else None

    def insist(self, node: Node, call: Callable[[], T]) -> T:
        """Return what a call answers, waiting out a lost connection.

        The call must be one that may be made twice.

        Raises:
            UnreachableError: the node is away for too long.
        """
        while not (answers := self._try(node, call)):
            time.sleep(RETRY_S)
        return answers[0]

    def _try(self, node: Node, call: Callable[[], T]) -> list[T]:
        """Return the answer as the only item, or nothing where the connection is lost."""
        begun = time.monotonic()
        try:
            answer = call()
        except UnreachableError:
            raise
        except ConnectionLostError as error:
            self._lost(node.name, begun, error)
            return []
        self._answered(node.name)
        return [answer]

    def _lost(self, name: str, begun: float, error: ConnectionLostError) -> None:
        if name not in self._since:
            append_event(self._run_dir, "link_lost", node=name, reason=error.what)
        since = self._since.setdefault(name, begun)
        away_s = time.monotonic() - since
        if away_s >= self._limit_s:
            raise UnreachableError(
                f"node {name} could not be reached for {away_s:.0f} s: {error.what}",
                error.where,
                "see that the node and the network run, then start the campaign again; "
                "policy.lost_node_s says how long a node is waited for",
            ) from error

    def _answered(self, name: str) -> None:
        since = self._since.pop(name, None)
        if since is not None:
            away_s = time.monotonic() - since
            self.away_s[name] = self.away_s.get(name, 0.0) + away_s
            append_event(self._run_dir, "link_healed", node=name, seconds=round(away_s, 3))
