"""Seeing patches from inside: the hook in a server's processes put in place, its notes judged.

The hook (`onnode/patch_hook.py`) is there only where a patch changed a Python file of the node.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from servemap.model.errors import NodeError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.agent_json import agent_json
from servemap.nodes.base import Node
from servemap.nodes.parallel import each
from servemap.server.container.image import Image
from servemap.server.context import Context
from servemap.server.gates.checks import Check, Started
from servemap.server.gates.holders import SUDO
from servemap.server.gates.imports import (
    Importer,
    import_rows,
    inside_path,
    judge_imports,
    parse_importers,
    watchable,
)
from servemap.server.gates.ports import process_tree
from servemap.server.launch import process
from servemap.server.launch.commands import RankCommand

NOTES_S = 60.0
SETTLE_S = 1.0

Record = Mapping[str, Any]


def hook_folder(workdir: str, boot_id: str) -> str:
    """Return the folder of one start that comes first on the PYTHONPATH of its server."""
    return str(PurePosixPath(workdir) / "server" / f"{boot_id}.hook")


def hooked(
    context: Context,
    server: ServerSpec,
    boot_id: str,
    command: RankCommand,
    patched: Record,
    images: Mapping[str, Image],
) -> RankCommand:
    """Return a rank's command with the hook, put in place on its node; as it is without patches.

    In a container the folder is a mount of the same path, and what the image has on its PYTHONPATH
    stays behind it. A PYTHONPATH there that is a secret cannot be added to, so there is no hook.

    Raises:
        NodeError: a file cannot be written there.
    """
    node_id = command.placement.node
    node, folder = context.nodes[node_id], hook_folder(context.workdir(node_id), boot_id)
    watched = watchable(_as_seen(node, server, patched))
    if not watched or (server.container is not None and "PYTHONPATH" in command.secrets):
        return command
    source = files("servemap.onnode").joinpath("patch_hook.py").read_text(encoding="utf-8")
    node.write_text(f"{folder}/watched", "".join(f"{path}\n" for path in watched))
    node.write_text(f"{folder}/notes", "")
    node.write_text(f"{folder}/sitecustomize.py", source)
    if server.container is None:
        return replace(command, hook=folder)
    # The user of the container may be any; on the node the folders above are closed to others.
    node.run(["chmod", "0666", "--", f"{folder}/notes"], timeout_s=NOTES_S)
    given = command.env.get("PYTHONPATH", images[node_id].python_path)
    path = f"{folder}:{given}" if given else folder
    return replace(command, hook=folder, env={**command.env, "PYTHONPATH": path})


def _as_seen(node: Node, server: ServerSpec, patched: Record) -> Record:
    """Return the record of a node's patches with the paths that the server has for the files."""
    if server.container is None or not patched.get("patches"):
        return patched
    pairs = [mount.split(":")[:2] for mount in server.container.mounts]
    hosts = [pair[0] for pair in pairs]
    real = node.run(["readlink", "-m", "--", *hosts], timeout_s=NOTES_S).stdout.splitlines()
    mounts = dict(zip(real, (pair[-1] for pair in pairs), strict=False))
    return {
        **patched,
        "patches": {
            name: {
                **patch,
                "files": [
                    {**file, "path": inside_path(str(file["path"]), mounts)}
                    for file in patch["files"]
                ],
            }
            for name, patch in patched["patches"].items()
        },
    }


def check_imports(
    context: Context,
    variant: str,
    boot_id: str,
    patched: Mapping[str, Record],
    started: Mapping[str, Started],
) -> tuple[list[Check], dict[str, list[dict[str, Any]]]]:
    """Return the checks of the patches of a server that answers, and what its processes imported.

    Args:
        context: the campaign.
        variant: variant of the server.
        boot_id: the start.
        patched: the record of each node's patches.
        started: the ranks by node.

    Returns:
        the checks, and by node {"pid", "process", "module", "file", "sha256", "inherited"} of each
        import of a file that is watched, or of a copy of it.
    """
    server = context.server(variant)
    foreign = _others(patched)
    if not server.patches:
        if foreign or not any(context.server(other).patches for other in context.plan.variants):
            return foreign, {}
        nodes = ", ".join(started)
        return [Check("patches", True, f"unpatched: no patch is in place on {nodes}")], {}
    found = each(
        list(started), lambda node_id: _look(context, server, boot_id, node_id, started[node_id])
    )
    checks = [
        replace(check, name=f"{check.name} {node_id}" if len(started) > 1 else check.name)
        for node_id, importers in found.items()
        for check in (
            [importers]
            if isinstance(importers, Check)
            else judge_imports(
                _as_seen(context.nodes[node_id], server, patched[node_id]), importers
            )
        )
    ]
    rows = {n: import_rows(one) for n, one in found.items() if not isinstance(one, Check)}
    return [*checks, *foreign], {node_id: one for node_id, one in rows.items() if one}


def _others(patched: Mapping[str, Record]) -> list[Check]:
    """Return what is not known because of patches of other campaigns that stand on the nodes.

    What a server uses is refused before the start.
    """
    found = [
        f"{one['path']} of {node_id} (by {one['work']})"
        for node_id, record in patched.items()
        for one in record["others"]
    ]
    if not found:
        return []
    return [
        Check(
            "patches",
            None,
            f"patched by another campaign, and not known to be used here: {'; '.join(found)}",
            "take that campaign's patches back: run its target `unpatch`",
        )
    ]


def _look(
    context: Context, server: ServerSpec, boot_id: str, node_id: str, one: Started
) -> list[Importer] | Check:
    """Return what a rank's processes noted; a failed check where that cannot be read."""
    known = one.view.processes
    ours = (process_tree(known, one.pid) | one.also) & known.keys()
    # The supervisor and its guard are of the start too, and nothing of the server.
    spec = process.spec_path(context.workdir(node_id), boot_id)
    commands = {pid: known[pid].command for pid in sorted(ours) if spec not in known[pid].command}
    node, folder = context.nodes[node_id], hook_folder(context.workdir(node_id), boot_id)
    become = context.node_spec(node_id).become and server.container is not None

    def ask() -> list[Importer]:
        argv = ["patch-notes", folder, *map(str, commands)]
        said = agent_json(node, *argv, timeout_s=NOTES_S, prefix=SUDO if become else ())
        return parse_importers(said, commands)

    try:
        found = ask()
        if any(importer.silent for importer in found):
            # A process that was starting just then has said something by now, or has ended.
            time.sleep(SETTLE_S)
            found = ask()
    except NodeError as error:
        return Check("patches", False, f"no notes of imports: {error.what}", error.remedy)
    except ValueError as error:
        return Check("patches", False, str(error), "use a controller and an agent of one version")
    return found
