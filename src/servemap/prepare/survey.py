"""Asking all nodes at once what they are: one connection and one start of a program each."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servemap.model.errors import NodeError, ServemapError
from servemap.model.files import parse_json
from servemap.model.server_spec import NodeSpec
from servemap.nodes.base import Node
from servemap.nodes.clock import ClockOffset, measure_clock
from servemap.nodes.parallel import each
from servemap.server.context import connect

Connector = Callable[[NodeSpec], Node]

RUN_S = 20.0
SURVEY_S = 180.0
"""A model on a cold network file system may take long to list."""


@dataclass(frozen=True)
class Answer:
    """What one node said.

    Attributes:
        way: how it was reached, in words; empty where it was not.
        unreachable: why there is no connection.
        broken: why the node's own program gave no survey.
        found: the survey, empty where there is none.
        clock: the node's clock against ours; None with the reason in `clock_error`.
    """

    way: str = ""
    unreachable: ServemapError | None = None
    broken: ServemapError | None = None
    found: dict[str, Any] = field(default_factory=dict)
    clock: ClockOffset | None = None
    clock_error: str = ""


def survey(node: Node, request: dict[str, Any]) -> dict[str, Any]:
    """Return a node's survey (`onnode/survey.py`).

    Raises:
        NodeError: the program does not run there or answers nothing that can be read.
    """
    done = node.run(node.agent_argv("survey"), timeout_s=SURVEY_S, input=json.dumps(request))
    said = f"node {node.name}: {node.python}"
    if done.code:
        raise NodeError(
            f"the node's program ended with {done.code}: {done.stderr.strip()[-300:]}",
            said,
            "install Python 3.8 or newer there, or name it as nodes.python",
        )
    try:
        found = parse_json(done.stdout)
    except ValueError as error:
        raise NodeError(
            f"the survey cannot be read: {error}", said, "run `servemap doctor` again"
        ) from error
    return found if isinstance(found, dict) else {}


def ask(
    spec: NodeSpec, request_of: Callable[[Node], dict[str, Any]], connector: Connector
) -> Answer:
    """Return a node's answer; what fails becomes part of it."""
    begun = time.monotonic()
    try:
        node = connector(spec)
        node.run(["true"], timeout_s=RUN_S)
    except ServemapError as error:
        return Answer(unreachable=error)
    seconds = time.monotonic() - begun
    way = "this machine" if node.here else f"connected in {1000 * seconds:.0f} ms"
    try:
        answer = Answer(way, found=survey(node, request_of(node)))
        try:
            return replace(answer, clock=measure_clock(node))
        except ServemapError as error:
            return replace(answer, clock_error=error.what)
    except ServemapError as error:
        return Answer(way, broken=error)
    finally:
        node.close()


def ask_all(
    specs: Sequence[NodeSpec],
    request_of: Callable[[NodeSpec, Node], dict[str, Any]],
    connector: Connector = connect,
) -> dict[str, Answer]:
    """Return every node's answer by its id; all are asked at the same time."""
    by_id = {spec.id: spec for spec in specs}

    def ask_one(name: str) -> Answer:
        spec = by_id[name]
        return ask(spec, lambda node: request_of(spec, node), connector)

    return each(list(by_id), ask_one)
