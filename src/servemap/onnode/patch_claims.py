"""Which work folder has a path patched, so that none takes another's patch for the original.

Beside the work folders of a user lies `patched/` with one note for each patched path:
{"path", "work"}, named by the sha256 of the path.
"""

import json
import os
import re
from typing import Iterable, List, Optional, Tuple

from .patch_files import Problem, read_bytes, remove, sha256, sync_folder

_OF_A_RUN = re.compile(r"(.+)-[0-9a-f]{8}-.+")
"""The name of a run's work folder: run, digest of its results folder, node."""


def claim(work: str, paths: Iterable[str]) -> None:
    """Note that `work` is about to change these paths.

    Raises:
        Problem: another work folder has a patch in place on one of them.
    """
    for path in paths:
        note = _note(work, path)
        while not _create(note, path, work):
            holder = _holder(note)
            if holder == work:
                break
            if holder is not None and _has_patched(holder, path):
                raise taken(path, holder)
            remove(note)


def taken(path: str, holder: str) -> Problem:
    """Return the refusal of a path that another work folder has patched; it names the run."""
    name = os.path.basename(holder)
    named = _OF_A_RUN.match(name)
    run = named.group(1) if named else name
    return Problem(
        f"{path} is patched by another campaign, run {run}",
        holder,
        f"take that campaign's patches back first: run its target `unpatch` (run {run})",
    )


def claims(work: str) -> List[Tuple[str, str]]:
    """Return path and work folder of every note beside a work folder.

    Raises:
        Problem: a note cannot be read.
    """
    folder = os.path.join(os.path.dirname(work), "patched")
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        note = os.path.join(folder, name)
        if name.endswith(".tmp"):
            continue
        try:
            data = json.loads(read_bytes(note).decode("utf-8"))
            found.append((str(data["path"]), str(data["work"])))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            raise Problem(
                f"the note of a patched path cannot be read: {error}",
                note,
                "run `unpatch` of the campaigns of this node, then remove the note",
            ) from error
    return found


def release(work: str, paths: Iterable[str]) -> None:
    """Remove the notes of these paths."""
    for path in paths:
        if _holder(_note(work, path)) == work:
            remove(_note(work, path))


def _note(work: str, path: str) -> str:
    return os.path.join(os.path.dirname(work), "patched", sha256(os.fsencode(path)))


def _create(note: str, path: str, work: str) -> bool:
    """Write a note that is not there yet; whole or not at all."""
    os.makedirs(os.path.dirname(note), mode=0o700, exist_ok=True)
    temporary = f"{note}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as handle:
        json.dump({"path": path, "work": work}, handle)
        handle.flush()
        os.fsync(handle.fileno())
    try:
        os.link(temporary, note)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(note))
    return True


def _holder(note: str) -> Optional[str]:
    try:
        return str(json.loads(read_bytes(note).decode("utf-8"))["work"])
    except FileNotFoundError:
        return None


def _has_patched(work: str, path: str) -> bool:
    """Whether a work folder's journal names a path; a journal that is lost may have."""
    try:
        journal = json.loads(read_bytes(os.path.join(work, "journal.json")).decode("utf-8"))
        return any(file["path"] == path for item in journal["entries"] for file in item["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True
