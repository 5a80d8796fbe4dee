"""The traces of a capture: on their nodes, as they grow, and brought here."""

import shutil
from pathlib import Path
from typing import Any

from servemap.engines.profiling import FOLDER
from servemap.measure.record import file_facts
from servemap.model.errors import NodeError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.base import Node
from servemap.server.context import Context

LIST_S = 30.0
TRACES = (".json", ".json.gz", ".json.zst")

Sizes = dict[str, int]
"""Bytes by absolute path."""


def trace_folder(context: Context, server: ServerSpec, node_id: str) -> str:
    """Return where the ranks of a node write: below the folder that they are started in."""
    below = (
        str(Path(context.paths_from(node_id), server.cwd))
        if server.cwd
        else context.workdir(node_id)
    )
    return f"{below}/{FOLDER}"


def listed(node: Node, folder: str) -> Sizes:
    """Return the files below a folder of a node; empty where it is not there."""
    argv = ["find", folder, "-type", "f", "-exec", "stat", "-c", "%s %n", "{}", "+"]
    lines = node.run(argv, timeout_s=LIST_S).stdout.splitlines()
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    return {path: int(size) for size, path in pairs if size.isdigit()}


def traces(sizes: Sizes) -> list[str]:
    """Return the paths of whole-looking traces among files: named so and not empty."""
    return sorted(path for path, size in sizes.items() if size and path.endswith(TRACES))


def remove(node: Node, folder: str) -> None:
    """Remove a folder on a node.

    Raises:
        NodeError: it is still there.
    """
    done = node.run(["rm", "-rf", "--", folder], timeout_s=LIST_S)
    if done.code:
        raise NodeError(
            f"the folder of traces cannot be removed: {done.stderr.strip()[-300:]}",
            f"{node.name}:{folder}",
            "remove it by hand, then take the capture again",
        )


def bring(node: Node, folder: str, local: Path, max_bytes: int | None) -> None:
    """Bring the regular files below a folder of a node here.

    Raises:
        NodeError: they do not come whole, or are larger than `max_bytes` together.
    """
    if not node.here:
        node.fetch(folder, local, max_bytes=max_bytes)
        return
    for path in listed(node, folder):
        target = local / Path(path).relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def kept_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return {path below the capture's folder: {size, mtime_ns, sha256}} of all that came."""
    return {
        str(path.relative_to(folder)): file_facts(path)
        for path in sorted(folder.glob("*/**/*"))
        if path.is_file() and not path.is_symlink()
    }
