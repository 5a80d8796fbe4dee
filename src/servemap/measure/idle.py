"""Whether a server is idle: what it still works on would be measured with what follows."""

import time

from servemap.nodes.base import Node
from servemap.parsers.exposition import read_exposition
from servemap.server.gates.ask import Question, ask
from servemap.server.patience import Patience
from servemap.telemetry.catalogue import engine_metrics

ASK_S = 5.0
POLL_S = 0.1


def in_flight(page: str) -> float | None:
    """Return how many requests run or wait by an engine's /metrics; None where it does not say."""
    names = {name for own in engine_metrics().values() for name in (own.running, own.waiting)}
    values = [
        series.value
        for series in read_exposition(page).series
        if series.metric in names and series.value is not None
    ]
    return sum(values) if values else None


def await_idle(
    node: Node, metrics_url: str | None, limit_s: float, patience: Patience
) -> str | None:
    """Wait until no request runs or waits; return in words why the server is not idle, or None.

    Nothing can be said of a server without such gauges: it is taken to be idle.

    Args:
        node: the head.
        metrics_url: the engine's metrics, None where it has none.
        limit_s: how long to wait.
        patience: waits for a node that is away.
    """
    if metrics_url is None:
        return None
    deadline = time.monotonic() + limit_s
    question = Question(metrics_url, ASK_S)
    while True:
        reply = patience.insist(node, lambda: ask(node, question))[0]
        left = in_flight(reply.text) if reply.error is None else None
        if not left:
            return None
        if time.monotonic() > deadline:
            return f"the server still worked on {left:g} requests {limit_s:g} s after their end"
        time.sleep(POLL_S)
