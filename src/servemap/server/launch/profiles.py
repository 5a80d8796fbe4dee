"""Where a server that is started for captures writes its traces; in a container, by a mount."""

from dataclasses import replace
from pathlib import Path

from servemap.engines.profiling import FOLDER, INSIDE
from servemap.model.errors import NodeError
from servemap.model.server_spec import ServerSpec
from servemap.server.context import Context
from servemap.server.launch.commands import RankCommand

MAKE_S = 30.0


def trace_folder(context: Context, server: ServerSpec, node_id: str) -> str:
    """Return the folder on a node that its ranks write to.

    It lies below the folder that they are started in, in a container below the run's own.
    """
    if server.cwd and server.container is None:
        return f"{Path(context.paths_from(node_id), server.cwd)}/{FOLDER}"
    return f"{context.workdir(node_id)}/{FOLDER}"


def with_traces(context: Context, server: ServerSpec, command: RankCommand) -> RankCommand:
    """Return the command of a rank in a container with its folder of traces, which is made.

    Raises:
        NodeError: it cannot be made.
    """
    node_id = command.placement.node
    node, folder = context.nodes[node_id], trace_folder(context, server, node_id)
    # The user of the container may be any; on the node the folders above are closed to others.
    for argv in (["mkdir", "-p", "--", folder], ["chmod", "0777", "--", folder]):
        done = node.run(argv, timeout_s=MAKE_S)
        if done.code:
            raise NodeError(
                f"the folder of traces cannot be made: {done.stderr.strip()[-300:]}",
                f"{node_id}:{folder}",
                "make room, or remove what stands there, then take the capture again",
            )
    return replace(command, mounts=(*command.mounts, f"{folder}:{INSIDE}"))
