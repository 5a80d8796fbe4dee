"""Where a server's interpreter finds its modules on a node."""

from servemap.engines.base import interpreter, python_env
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.model.files import parse_json
from servemap.server.context import Context

ASK_S = 60.0
# The empty entry is the folder that the program is started in: not the server's.
_ASK = "import json, sys; print(json.dumps([folder for folder in sys.path if folder]))"


def search_path(context: Context, variant: str, node_id: str) -> list[str]:
    """Return the folders that a variant's server imports from, as its interpreter names them.

    Only those of PYTHONPATH where the interpreter does not answer; none for a server in a
    container, whose folders are not the node's.

    Raises:
        ConnectionLostError: the node cannot be reached.
    """
    server = context.server(variant)
    if server.container is not None:
        return []
    node = context.nodes[node_id]
    given = python_env(server, context.paths_from(node_id))
    env = context.node_spec(node_id).env | {
        name: value for name, value in given.items() if isinstance(value, str)
    }
    python = interpreter(server, context.python_on(node_id), context.paths_from(node_id))
    try:
        said = node.run([python, "-c", _ASK], timeout_s=ASK_S, env=env).stdout
        return [str(folder) for folder in parse_json(said)]
    except ConnectionLostError:
        raise
    except (NodeError, ValueError, TypeError):
        return [folder for folder in env.get("PYTHONPATH", "").split(":") if folder]
