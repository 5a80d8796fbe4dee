"""Who is on the cards of a server's nodes, looked at when a load begins and when it ended."""

from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.gates.dirty import check_clean
from servemap.server.launch.node_gates import holders_on
from servemap.server.launch.served import Served


def look_at_cards(context: Context, variant: str, served: Served) -> dict[str, dict[str, Any]]:
    """Return {NODE: {"ok", "evidence"}}: whether only the server holds the node's cards.

    Nodes without cards are left out, and so is a server that was not started by this campaign,
    whose processes are not known. `ok` is null where a node could not be looked at.
    """
    boot_id = served.boot_id
    if boot_id is None:
        return {}

    def look(name: str) -> dict[str, Any]:
        spec = context.node_spec(name)
        try:
            holders = holders_on(context, [name])[name]
        except NodeError as error:
            return {"ok": None, "evidence": str(error)}
        said = check_clean(holders, spec, expected_boot=boot_id, ports=()).record()
        return {"ok": said["ok"], "evidence": said["evidence"]}

    nodes = context.plan.nodes_of(variant)
    return each([name for name in nodes if context.node_spec(name).accelerators], look)
