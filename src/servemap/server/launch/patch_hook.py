"""Seeing patches from inside: the hook in a server's processes put in place, its notes judged.

The hook (`onnode/patch_hook.py`) is there only where a patch changed a Python file of the node.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from servemap.model.errors import NodeError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.agent_json import agent_json
from servemap.nodes.parallel import each
from servemap.onnode.view import Process
from servemap.server.context import Context
from servemap.server.gates.checks import Check, Started
from servemap.server.gates.imports import (
    Importer,
    import_rows,
    judge_imports,
    parse_importers,
    watchable,
)
from servemap.server.gates.ports import process_tree
from servemap.server.launch.commands import RankCommand

NOTES_S = 60.0

Record = Mapping[str, Any]


def hook_folder(workdir: str, boot_id: str) -> str:
    """Return the folder of one start that comes first on the PYTHONPATH of its server."""
    return str(PurePosixPath(workdir) / "server" / f"{boot_id}.hook")


def hooked(context: Context, boot_id: str, command: RankCommand, patched: Record) -> RankCommand:
    """Return a rank's command with the hook, put in place on its node; as it is without patches.

    A server in a container is left as it is: it has files and folders of its own.

    Raises:
        NodeError: a file cannot be written there.
    """
    watched = watchable(patched)
    if not watched or command.container is not None:
        return command
    node_id = command.placement.node
    node, folder = context.nodes[node_id], hook_folder(context.workdir(node_id), boot_id)
    source = files("servemap.onnode").joinpath("patch_hook.py").read_text(encoding="utf-8")
    node.write_text(f"{folder}/watched", "".join(f"{path}\n" for path in watched))
    node.write_text(f"{folder}/notes", "")
    node.write_text(f"{folder}/sitecustomize.py", source)
    return replace(command, hook=folder)


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
    if not server.patches:
        if not any(context.server(other).patches for other in context.plan.variants):
            return [], {}
        nodes = ", ".join(started)
        return [
            Check("patches", True, f"unpatched: no patch of this run is in place on {nodes}")
        ], {}
    found = each(
        list(started), lambda node_id: _look(context, server, boot_id, node_id, started[node_id])
    )
    checks = [
        replace(check, name=f"{check.name} {node_id}" if len(started) > 1 else check.name)
        for node_id, importers in found.items()
        for check in (
            [importers]
            if isinstance(importers, Check)
            else judge_imports(patched[node_id], importers)
        )
    ]
    rows = {n: import_rows(one) for n, one in found.items() if not isinstance(one, Check)}
    return checks, {node_id: one for node_id, one in rows.items() if one}


def _look(
    context: Context, server: ServerSpec, boot_id: str, node_id: str, one: Started
) -> list[Importer] | Check:
    """Return what a rank's processes noted; a check that has no answer where they cannot."""
    if server.container is not None:
        return Check(
            "patches",
            None,
            "the server runs in a container: what its processes import is not seen from inside",
            "prove a patch there by what the server does",
        )
    known = one.view.processes
    ours = process_tree(known, one.pid) | (one.also - _above(known, one.pid))
    processes = {pid: known[pid] for pid in sorted(ours & known.keys())}
    node, folder = context.nodes[node_id], hook_folder(context.workdir(node_id), boot_id)
    try:
        said = agent_json(node, "patch-notes", folder, *map(str, processes), timeout_s=NOTES_S)
        return parse_importers(said, {pid: process.command for pid, process in processes.items()})
    except (NodeError, ValueError) as error:
        return Check("patches", False, f"what was imported cannot be read: {error}", "try again")


def _above(processes: Mapping[int, Process], pid: int) -> set[int]:
    """Return the parents of a process, such as its supervisor."""
    found: set[int] = set()
    while pid in processes and processes[pid].ppid not in found:
        pid = processes[pid].ppid
        found.add(pid)
    return found
