"""The traces of a capture: on their nodes, as they grow, chosen, and brought here."""

import gzip
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

from servemap.engines.profiling import Asked, Profiler
from servemap.measure.record import file_facts
from servemap.model.errors import NodeError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.base import Node

LIST_S = 30.0
TRACES = (".json", ".json.gz", ".json.zst")
PIECE_BYTES = 1 << 20
NAMED = re.compile(r"([0-9a-f]{32})[-_]")
"""How the name of a file begins where the engine took it from the capture."""

Sizes = dict[str, int]
"""Bytes by absolute path; of several nodes, by `NODE:PATH`."""


def listed(node: Node, folder: str) -> Sizes:
    """Return the files below a folder of a node; empty where it is not there."""
    argv = ["find", folder, "-type", "f", "-exec", "stat", "-c", "%s %n", "{}", "+"]
    lines = node.run(argv, timeout_s=LIST_S).stdout.splitlines()
    pairs = [line.split(" ", 1) for line in lines if " " in line]
    return {path: int(size) for size, path in pairs if size.isdigit()}


def traces(sizes: Sizes) -> list[str]:
    """Return the paths of whole-looking traces among files: named so and not empty."""
    return sorted(path for path, size in sizes.items() if size and path.endswith(TRACES))


def chosen(
    sizes: Sizes, profiler: Profiler, server: ServerSpec, asked: Asked, ranks: list[int] | None
) -> list[str]:
    """Return the paths of the traces that a capture is of.

    Left out are those of another profile, where the engine names its files as it was asked; those
    of the other stage, where one was asked for; and those of ranks that are not to be kept. Whose
    rank is not told by its name is kept.
    """
    found = [path for path in traces(sizes) if not _of_another(Path(path).name, asked.name)]
    own = [path for path in found if Path(path).name.startswith(asked.name)]
    found = own or found
    others = [end for stage, end in profiler.stages.items() if asked.stage not in (None, stage)]
    found = [path for path in found if not any(f"{end}." in path for end in others)]
    if ranks is None:
        return found
    return [path for path in found if profiler.rank_of(Path(path).name, server) in (None, *ranks)]


def _of_another(name: str, own: str) -> bool:
    """Whether a file is named after another capture, whose profile may end in this one's load."""
    named = NAMED.match(name)
    return named is not None and named[1] != own


def whole(path: Path) -> bool:
    """Return whether a trace that was brought ends as one does, and not in its middle.

    One that is compressed by zstd is taken for whole: engines write none.
    """
    last = b""
    try:
        if path.name.endswith(".zst"):
            return True
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as handle:
            while piece := handle.read(PIECE_BYTES):
                last = piece.rstrip() or last
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return last.endswith((b"}", b"]"))


def remove(node: Node, paths: list[str]) -> None:
    """Remove files and folders on a node.

    Raises:
        NodeError: one is still there.
    """
    if paths:
        _done(node, ["rm", "-rf", "--", *paths], paths[0])


def clear(node: Node, folder: str) -> None:
    """Remove the folder of traces on a node.

    Raises:
        NodeError: it is still there.
    """
    remove(node, [folder])


def empty(node: Node, folder: str) -> None:
    """Remove what a folder on a node holds, and keep it: a mount of it stays one.

    Raises:
        NodeError: something is still there.
    """
    _done(node, ["find", folder, "-mindepth", "1", "-delete"], folder)


def _done(node: Node, argv: list[str], what: str) -> None:
    done = node.run(argv, timeout_s=LIST_S)
    if done.code:
        raise NodeError(
            f"traces cannot be removed: {done.stderr.strip()[-300:]}",
            f"{node.name}:{what}",
            "remove them by hand, then take the capture again",
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
