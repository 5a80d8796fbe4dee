"""Where a server's interpreter finds its modules on a node, and what else of it a server uses."""

from collections.abc import Iterable

from servemap.engines.base import interpreter, on_node, python_env
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.model.files import parse_json
from servemap.server.context import Context
from servemap.server.engine_facts import package_folder

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


def used_paths(context: Context, variants: Iterable[str], node_id: str) -> list[str]:
    """Return the files and folders of a node that servers of these variants use.

    They are where a server imports from, its package and working folder, what its container has
    from the node, and the targets of all patches of the campaign. None of servers that are only
    attached to.

    Raises:
        ConnectionLostError: the node cannot be reached.
    """
    base = context.paths_from(node_id)
    found: list[str] = []
    own = [variant for variant in variants if not context.server(variant).attach]
    for variant in own:
        server = context.server(variant)
        found += search_path(context, variant, node_id)
        named = [package_folder(server, base), server.cwd]
        if server.container is not None:
            named += [mount.split(":")[0] for mount in server.container.mounts]
        found += [on_node(path, base) for path in named if path]
    if own:
        patched = (p for name in context.plan.variants for p in context.server(name).patches)
        found += [on_node(patch.target, base) for patch in patched]
    return list(dict.fromkeys(found))
