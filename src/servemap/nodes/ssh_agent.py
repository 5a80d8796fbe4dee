"""The on-node program on a machine that is reached over ssh: there, whole, and able to run."""

import json
from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes import ssh_command
from servemap.nodes.agent_zip import build_agent
from servemap.nodes.base import Completed, Node
from servemap.nodes.ssh_errors import check_file, command_text, last_line
from servemap.nodes.ssh_reach import SHORT_S, Reach

OLDEST_PYTHON = (3, 8)
AGENT_MODE = 0o644


def install(node: Node, reach: Reach) -> str:
    """Return the path of the on-node program, put there where it is missing or damaged.

    Raises:
        NodeError: no usable Python there, or the program cannot be written.
    """
    check_python(node)
    name, data = build_agent()
    path = f"{node.state_dir()}/{name}"
    wanted = name.removesuffix(".pyz").rpartition("-")[2]
    found = reach.short(ssh_command.digest(path))
    if found.code or not found.stdout.decode(errors="replace").startswith(wanted):
        script = ssh_command.write(path, len(data), AGENT_MODE)
        check_file(node.name, path, reach.short(script, data))
    return path


def check_python(node: Node) -> None:
    """Raise NodeError where the node's interpreter is missing, broken or too old."""
    where = f"node {node.name}"
    remedy = f"install Python 3.8 or newer there, or name one as nodes.{node.name}.python"
    code = "import sys; print('%d %d' % sys.version_info[:2])"
    try:
        done = node.run([node.python, "-c", code], timeout_s=SHORT_S)
    except NodeError as error:
        if "cannot start" not in error.what:
            raise
        raise NodeError(f"there is no {node.python}", where, remedy) from error
    words = done.stdout.split()
    if not done.code and words[:-2]:
        said = f"{node.python} prints more than it was asked for: {done.stdout.strip()[:100]!r}"
        raise NodeError(
            said, where, f"see what starts it there (sitecustomize, a wrapper); {remedy}"
        )
    if done.code or len(words) != 2 or not all(word.isdigit() for word in words):
        raise NodeError(f"{node.python} does not run: {last_line(done.stderr)}", where, remedy)
    if (int(words[0]), int(words[1])) < OLDEST_PYTHON:
        raise NodeError(f"{node.python} is Python {'.'.join(words)}, too old", where, remedy)


def answer_of(node: Node, done: Completed) -> dict[str, Any]:
    """Return the JSON object that a command of the on-node program printed.

    Raises:
        NodeError: it printed something else.
    """
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise strange(node, done) from error
    if not isinstance(answer, dict):
        raise strange(node, done)
    return answer


def strange(node: Node, done: Completed) -> NodeError:
    """Return the error for an answer of the on-node program that means nothing."""
    return NodeError(
        f"the on-node program ended with {done.code}: {last_line(done.stderr or done.stdout)}",
        f"node {node.name}: {command_text(done.argv)}",
        "run that command there by hand and see what it says",
    )
