"""The shared memory of a start: noted on its node, and removed with it.

On the controller's own machine no process is started for it: a launch waits for this.
"""

import contextlib

from servemap.nodes.base import Node
from servemap.onnode import segments

SEGMENTS_S = 60.0


def note(node: Node, path: str, boot_id: str) -> None:
    """Note in the file `path` on a node what the processes of a start map now."""
    if not node.here:
        node.run(
            node.agent_argv("segments", "--file", path, "--boot-id", boot_id), timeout_s=SEGMENTS_S
        )
        return
    # What cannot be noted is found by nobody later, and that is all.
    with contextlib.suppress(OSError):
        segments.note(path, boot_id)


def remove(node: Node, path: str) -> None:
    """Remove what is noted in the file `path` on a node and is nobody's any more."""
    if node.here:
        segments.remove(path)
    else:
        node.run(node.agent_argv("segments", "--file", path, "--remove"), timeout_s=SEGMENTS_S)
