"""What still runs on the nodes for a run, also where its controller died."""

from dataclasses import dataclass

from servemap.model.errors import NodeError
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.launch import process


@dataclass(frozen=True)
class LeftServer:
    """A server of the run that runs on a node; the pid is its own, else its supervisor's."""

    node: str
    variant: str
    boot_id: str
    pid: int
    since_ns: int


@dataclass(frozen=True)
class NotAsked:
    """A node of which nobody can say what runs there."""

    node: str
    reason: str


def left_running(context: Context) -> list[LeftServer | NotAsked]:
    """Return the run's servers that run on its nodes, and the nodes that cannot be asked."""
    answers = each(list(context.nodes), lambda node_id: _on(context, node_id))
    return [answer for answer in answers.values() if answer is not None]


def _on(context: Context, node_id: str) -> LeftServer | NotAsked | None:
    node = context.nodes[node_id]
    try:
        workdir = context.workdir(node_id)
        running = process.read_running(node, workdir)
        if running is None:
            return None
        state = process.supervisor_state(node, workdir, running.boot_id)
        for found in (process.server_process(state), running.supervisor):
            if found is not None and node.alive(found):
                return LeftServer(
                    node_id, running.variant, running.boot_id, found.pid, running.started_ns
                )
    except NodeError as error:
        return NotAsked(node_id, error.what)
    return None
