"""What a patch would change: its kind and source turned into files, without touching one."""

import os
from typing import Callable, List, NamedTuple, Optional

from . import udiff
from .patch_files import Problem, state_of
from .patch_request import Patch, SourceFile

Content = Callable[[str], Optional[bytes]]
"""The bytes that stand at a path, or will by then; None where there is no file."""

_TEXT_PROBE = 8192


class Change(NamedTuple):
    """One path that a patch writes: a file's bytes, or a link's goal, or neither for a script.

    `mode` is used where the file is new.
    """

    path: str
    data: Optional[bytes] = None
    goal: Optional[str] = None
    mode: int = 0o644


def plan(patch: Patch, content: Content) -> List[Change]:
    """Return the changes of a patch, in order.

    Raises:
        Problem: CRLF line ends, a target that is missing or outside its root, a source that does
            not fit.
    """
    if patch.eol == "lf":
        _refuse_crlf(patch)
    target = resolve_target(patch)
    kind = patch.kind
    if kind == "symlink":
        return [_link(patch, target)]
    if kind == "folder":
        return [_member(patch, target, name, file) for name, file in sorted(patch.files.items())]
    source = patch.files[""]
    original = content(target)
    if kind == "diff":
        return [Change(target, data=_patched(patch, target, source.data, original))]
    if original is None:
        raise _missing(patch, f"there is no file {target} on the node")
    if kind == "script":
        interpreter(patch, source.data)
        return [Change(target)]
    return [Change(target, data=source.data)]


def written_paths(patch: Patch) -> List[str]:
    """Return the real paths that a patch writes to, whatever it finds there.

    Raises:
        Problem: as `plan` raises it for the target.
    """
    target = resolve_target(patch)
    if patch.kind != "folder":
        return [target]
    return [os.path.realpath(os.path.join(target, name)) for name in sorted(patch.files)]


def resolve_target(patch: Patch) -> str:
    """Return the real path that a patch writes to.

    Raises:
        Problem: the root or the target's folder is not there, or the target is outside its root,
            also after `..` and links are followed.
    """
    root = os.path.realpath(patch.root)
    if not os.path.isdir(root):
        raise _refusal(
            patch,
            "root",
            f"the root {patch.root} is not a folder on the node",
            "give the folder that the target must lie in",
        )
    folder, name = os.path.split(os.path.abspath(patch.target))
    real = os.path.join(os.path.realpath(folder), name)
    if patch.kind != "symlink":  # there the link itself is the target, not what it points to
        real = os.path.realpath(real)
    is_root = real == root and patch.kind == "folder"
    if not (is_root or _below(real, root)):
        raise _outside(patch, real, f"its root {root}")
    if patch.kind == "folder":
        if not os.path.isdir(real):
            raise _missing(patch, f"there is no folder {real} on the node")
    elif not os.path.isdir(os.path.dirname(real)):
        raise _missing(patch, f"there is no folder {os.path.dirname(real)} on the node")
    elif state_of(real)["type"] == "other":
        raise _refusal(patch, "target", f"{real} is not a file", "name a file, or use kind: folder")
    return real


def interpreter(patch: Patch, script: bytes) -> List[str]:
    """Return the interpreter's argv of a script's first line.

    Raises:
        Problem: the script does not begin with `#!`.
    """
    first = script.split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
    words = first[2:].split(None, 1) if first.startswith("#!") else []
    if not words:
        raise _refusal(
            patch,
            "source",
            f"the script {patch.source} does not name its interpreter",
            "let its first line be #!/usr/bin/env python3 or #!/bin/sh",
        )
    return [word.strip() for word in words]


def _link(patch: Patch, target: str) -> Change:
    goal = patch.source
    if not os.path.exists(os.path.join(os.path.dirname(target), goal)):
        raise _refusal(
            patch,
            "source",
            f"the link's goal {goal} is missing on the node",
            "give an existing path, absolute or relative to the link's folder",
        )
    return Change(target, goal=goal)


def _member(patch: Patch, target: str, name: str, file: SourceFile) -> Change:
    path = os.path.realpath(os.path.join(target, name))
    if not _below(path, target):
        raise _outside(patch, path, f"its target {target}")
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if state_of(path)["type"] == "other" or not os.path.isdir(parent):
        raise _refusal(
            patch,
            "source",
            f"{name} cannot be written: a folder stands where a file should, or the reverse",
            "give the source folder the same shape as the target",
        )
    return Change(path, data=file.data, mode=file.mode)


def _patched(patch: Patch, target: str, source: bytes, original: Optional[bytes]) -> bytes:
    try:
        diffs = udiff.parse(source)
        names = [name for diff in diffs for name in (diff.old_name, diff.new_name) if name]
        others = [name for name in names if not _names_target(name, target)]
        diff = diffs[0]
        if len(diffs) > 1 or len(others) == len(names):
            raise _refusal(
                patch,
                "source",
                f"the diff {patch.source} changes {', '.join(others or names)}, not only "
                f"the target {target}",
                "give one diff for each target, with the target's name in its '+++' line",
            )
        if diff.new_name is None:
            raise udiff.DiffError("it removes the file")
        if original is None and diff.old_name is not None:
            raise _missing(patch, f"there is no file {target} on the node")
        if original is not None and diff.old_name is None:
            raise udiff.DiffError("it adds a file that is already there")
        return udiff.apply(diff, original or b"")
    except udiff.DiffError as error:
        raise _refusal(
            patch,
            "source",
            f"the diff {patch.source} does not apply to {target}: {error}",
            "make it anew against the file that is on the node",
        ) from error


def _names_target(name: str, target: str) -> bool:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if parts[0] in ("a", "b") and len(parts) > 1:
        parts = parts[1:]
    return target.split("/")[-len(parts) :] == parts


def _refuse_crlf(patch: Patch) -> None:
    for name, file in patch.files.items():
        if b"\r\n" in file.data and b"\0" not in file.data[:_TEXT_PROBE]:
            line = file.data[: file.data.index(b"\r\n")].count(b"\n") + 1
            raise _refusal(
                patch,
                "source",
                f"{os.path.join(patch.source, name).rstrip('/')} has CRLF line ends (line {line})",
                "convert it to LF and add `* text=auto eol=lf` to .gitattributes, or set eol: keep",
            )


def _below(path: str, folder: str) -> bool:
    return path != folder and bool(os.path.commonpath([path, folder]) == folder)


def _outside(patch: Patch, path: str, of: str) -> Problem:
    return _refusal(
        patch,
        "target",
        f"{path} is outside {of}",
        "name a target below it; links and `..` are followed before this is judged",
    )


def _missing(patch: Patch, what: str) -> Problem:
    remedy = "mend the path, or install first what the target belongs to"
    if patch.kind in ("file", "diff"):
        remedy += "; to add a file use kind: folder, or a diff from /dev/null"
    return _refusal(patch, "target", f"the target is missing: {what}", remedy)


def _refusal(patch: Patch, key: str, what: str, remedy: str) -> Problem:
    return Problem(what, f"patches.{patch.id}.{key}", remedy, patch.id)
