"""Waiting for the nodes of a job before anything is done on them: a reboot, a cut cable."""

from collections.abc import Sequence

from servemap.model.errors import UnreachableError
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.events import append_event, read_events
from servemap.server.patience import Patience


def reach(context: Context, node_ids: Sequence[str]) -> None:
    """Wait until nodes can be reached, at most `policy.lost_node_s`.

    A node that was waited for in vain in this session is asked once and not waited for again.

    Raises:
        UnreachableError: one of them cannot be reached.
    """
    given_up = {
        str(event.get("node"))
        for event in read_events(context.run_dir)
        if event.get("event") == "node_given_up" and event.get("session") == context.session
    }
    limit_s = context.policy.lost_node_s

    def connect(node_id: str) -> None:
        node = context.nodes[node_id]
        patience = Patience(context.run_dir, 0 if node_id in given_up else limit_s)
        try:
            patience.insist(node, node.state_dir)
        except UnreachableError as error:
            if node_id not in given_up:
                append_event(
                    context.run_dir,
                    "node_given_up",
                    node=node_id,
                    session=context.session,
                    error=error.what,
                )
            raise

    each([node_id for node_id in node_ids if not context.nodes[node_id].here], connect)
