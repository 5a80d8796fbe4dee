"""Which work folder has a path patched, so that none takes another's patch for the original.

Beside the work folders of a user lies `patched/` with one note for each patched path:
{"path", "work"}, named by the sha256 of the path.
"""

import json
import os
from typing import Iterable, Optional

from .patch_files import Problem, read_bytes, remove, sha256, sync_folder


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
                raise Problem(
                    f"{path} is patched by another campaign",
                    holder,
                    "take that campaign's patches back first: run its target `unpatch`",
                )
            remove(note)


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
