"""One call of the on-node program that answers with JSON."""

import shlex
from collections.abc import Sequence
from typing import Any

from servemap.model.errors import NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Node


def agent_json(
    node: Node,
    *args: str,
    timeout_s: float,
    text: str | None = None,
    prefix: Sequence[str] = (),
) -> Any:
    """Return what a command of the on-node program printed.

    Args:
        node: where it runs.
        args: the command and its options.
        timeout_s: longest time it may take.
        text: its stdin.
        prefix: words before it, such as `sudo -n`.

    Raises:
        NodeError: it failed or printed no JSON; ConnectionLostError where the link broke.
    """
    argv = [*prefix, *node.agent_argv(*args)]
    done = node.run(argv, timeout_s=timeout_s, input=text)
    try:
        if done.code == 0:
            return parse_json(done.stdout)
    except ValueError:
        pass
    raise NodeError(
        f"the agent exited with {done.code}: {done.stderr.strip()[-300:] or 'no message'}",
        f"{node.name}: {shlex.join(argv)}",
        "run that command on the node and mend what it says",
    )
