"""What stands at a path, and replacing it whole: readers see the old state or the new one."""

import hashlib
import os
import stat
from typing import Any, Dict, Optional

State = Dict[str, Any]
"""{"type": "absent"} | {"type": "link", "goal"} | {"type": "file", "sha256", "mode", "mtime_ns",
"uid", "gid"} | {"type": "other"}"""

ABSENT: State = {"type": "absent"}


class Problem(Exception):
    """A refusal for people: which patch, what happened, where, and what to do about it."""

    def __init__(self, what: str, where: str, remedy: str, patch: Optional[str] = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy
        self.patch = patch

    def as_json(self) -> Dict[str, Optional[str]]:
        """Return the parts as a JSON object."""
        return {
            "patch": self.patch,
            "what": self.what,
            "where": self.where,
            "remedy": self.remedy,
        }


def sha256(data: bytes) -> str:
    """Return the sha256 hex digest."""
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str) -> bytes:
    """Return a file's bytes."""
    with open(path, "rb") as handle:
        return handle.read()


def state_of(path: str) -> State:
    """Return what stands at a path; links are not followed."""
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return dict(ABSENT)
    if stat.S_ISLNK(facts.st_mode):
        return {"type": "link", "goal": os.readlink(path)}
    if not stat.S_ISREG(facts.st_mode):
        return {"type": "other"}
    return {
        "type": "file",
        "sha256": sha256(read_bytes(path)),
        "mode": stat.S_IMODE(facts.st_mode),
        "mtime_ns": facts.st_mtime_ns,
        "uid": facts.st_uid,
        "gid": facts.st_gid,
    }


def same_content(one: State, other: State) -> bool:
    """Whether two states have the same bytes or goal, whatever their modes."""
    keys = ("type", "sha256", "goal")
    return all(one.get(key) == other.get(key) for key in keys)


def same(one: State, other: State) -> bool:
    """Whether two states agree in bytes or goal, and in mode."""
    return same_content(one, other) and one.get("mode") == other.get("mode")


def temporary_of(path: str) -> str:
    """Return the one name that a replacement of `path` is prepared under."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.servemap.tmp")


def sync_folder(path: str) -> None:
    """Make renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: str, data: bytes, state: State) -> None:
    """Replace a file by `data` with the mode, time and owner that `state` names, atomically."""
    temporary = temporary_of(path)
    remove(temporary)
    # not readable by others before its mode is set
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        if "uid" in state and (state["uid"], state["gid"]) != (os.geteuid(), os.getegid()):
            _give(file.fileno(), state)
        os.fchmod(file.fileno(), state["mode"])
        os.fsync(file.fileno())
    if "mtime_ns" in state:
        os.utime(temporary, ns=(state["mtime_ns"], state["mtime_ns"]))
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def _give(handle: int, state: State) -> None:
    try:
        os.fchown(handle, state["uid"], state["gid"])
    except PermissionError:
        # only root may give files away; the bytes and the mode are what is promised
        return


def write_link(path: str, goal: str) -> None:
    """Replace what stands at a path by a symbolic link, atomically."""
    temporary = temporary_of(path)
    remove(temporary)
    os.symlink(goal, temporary)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def remove(path: str) -> None:
    """Remove a file or link if it is there."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    sync_folder(os.path.dirname(path))
