"""HTTP questions to a server, asked on the node where it runs: it may listen there only."""

import json
from dataclasses import dataclass
from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes.agent_json import agent_json
from servemap.nodes.base import Node
from servemap.onnode import ask as asking
from servemap.onnode.ask import shorten

AGENT_START_S = 30.0


@dataclass(frozen=True)
class Question:
    """A GET, or a POST of `body` as JSON, that must be answered within about `timeout_s`."""

    url: str
    timeout_s: float
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """An answer, or why there is none.

    `status` is None where no HTTP answer came; `error` is None for an answer with status 2xx.
    """

    url: str
    status: int | None
    text: str
    error: str | None

    @property
    def json(self) -> Any | None:
        """The parsed body; None where it is no JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def evidence(self) -> str:
        """What was asked and what came back, in one short line."""
        if self.error is None:
            return f"{self.url} answered {self.status}: {shorten(self.text) or '(nothing)'}"
        return f"{self.url}: {self.error}"


def ask(node: Node, *questions: Question) -> list[Reply]:
    """Return the answers to questions asked on a node, one after the other, in one process start.

    Environment variables of proxies are never used.

    Raises:
        NodeError: the node itself did not do its part.
    """
    if node.here:
        return [Reply(**asking.ask(one.url, one.timeout_s, one.body)) for one in questions]
    timeout_s = AGENT_START_S + sum(one.timeout_s for one in questions)
    asked = [{"url": one.url, "timeout_s": one.timeout_s, "body": one.body} for one in questions]
    data = agent_json(node, "ask", timeout_s=timeout_s, text=json.dumps(asked))
    try:
        replies = [_reply(one) for one in data]
    except (TypeError, KeyError) as error:
        raise _damaged(node) from error
    if len(replies) != len(questions):
        raise _damaged(node)
    return replies


def _reply(data: dict[str, Any]) -> Reply:
    status, error = data["status"], data["error"]
    return Reply(
        str(data["url"]),
        status if isinstance(status, int) else None,
        str(data["text"]),
        None if error is None else str(error),
    )


def _damaged(node: Node) -> NodeError:
    return NodeError(
        "the agent's answers do not belong to the questions",
        f"{node.name}: ask",
        "see what the login shell of that user prints; nothing else may write to stdout",
    )
