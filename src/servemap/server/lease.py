"""The lease of a machine: one campaign at a time drives a node, whoever started it.

`lease.json` lies in a folder that all users share and can read, so that a second controller is
told who holds the node. A lease whose process is gone is taken over.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servemap.model.errors import LockedError, ResultsError
from servemap.model.files import regular
from servemap.server.locks import describe_self, holder_alive, read_holder, say_holder


def lease_dir() -> Path:
    """Return the folder of the lease: `SERVEMAP_LEASE_DIR`, else one for the whole machine."""
    return Path(os.environ.get("SERVEMAP_LEASE_DIR", "/tmp/servemap-lease"))


@contextmanager
def _guard() -> Iterator[Path]:
    folder = lease_dir()
    lease = folder / "lease.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _share(folder, 0o777)
        guard = folder / "guard"
        descriptor = regular(str(guard), os.O_RDONLY | os.O_CREAT)
        try:
            _share(guard, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield lease
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ResultsError(
            f"the lease of this machine cannot be kept: {error.strerror or error}",
            str(lease),
            "let this user write a file there and see that the disk has room, or set "
            "SERVEMAP_LEASE_DIR to another folder, the same for all campaigns of the machine",
        ) from error


def _share(path: Path, mode: int) -> None:
    if path.stat().st_uid == os.getuid():
        path.chmod(mode)


def take_lease(node: str, run_dir: Path) -> None:
    """Take the machine for a run.

    Raises:
        LockedError: a living controller of another run or user holds it.
        ResultsError: the lease cannot be written.
    """
    owner = describe_self(run=str(run_dir.resolve()), node=node)
    with _guard() as path:
        holder = read_holder(path)
        _refuse_held(node, holder)
        temporary = path.with_name(f"lease.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(owner), encoding="utf-8")
            temporary.chmod(0o644)
            _put(node, temporary, path, holder)
        finally:
            temporary.unlink(missing_ok=True)


def _put(node: str, temporary: Path, path: Path, holder: dict[str, Any]) -> None:
    try:
        temporary.replace(path)
    except PermissionError:
        raise LockedError(
            f"the stale lease of node {node} belongs to another user ({say_holder(holder)})",
            str(path),
            "ask that user to remove the file",
        ) from None


def check_lease(node: str) -> None:
    """Refuse a machine that another campaign drives; takes and writes nothing.

    Raises:
        LockedError: a living controller of another run or user holds it.
    """
    _refuse_held(node, read_holder(lease_dir() / "lease.json"))


def _refuse_held(node: str, holder: dict[str, Any]) -> None:
    if not holder_alive(holder) or holder.get("pid") == os.getpid():
        return
    run = Path(str(holder.get("run", "?")))
    raise LockedError(
        f"node {node} is driven by {say_holder(holder)}: run {run}",
        str(lease_dir() / "lease.json"),
        f"wait until that campaign ends, or stop it from {run.parent.parent} with "
        f"`servemap stop {run.name} --after-case --reason TEXT`",
    )


def release_lease(run_dir: Path) -> None:
    """Give the machine back if this process holds it for this run."""
    with _guard() as path:
        holder: dict[str, Any] = read_holder(path)
        if holder.get("pid") == os.getpid() and holder.get("run") == str(run_dir.resolve()):
            path.unlink(missing_ok=True)
