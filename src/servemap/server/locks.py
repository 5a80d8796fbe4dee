"""Locks of a run: one controller at a time, and one job at a time that holds the server.

Both are `flock`s, which the kernel releases when their holder dies, and both write down who holds
them, so that an orphan can be named and fenced.
"""

import contextlib
import fcntl
import getpass
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from servemap.model.errors import LockedError, ResultsError
from servemap.model.files import read_json_value, regular
from servemap.nodes.base import ProcessId
from servemap.nodes.identity import identify, machine_boot_id
from servemap.onnode.ident import is_alive


def describe_self(**facts: Any) -> dict[str, Any]:
    """Return who holds a lock: process identity, user, host, time, and `facts`."""
    me = identify(os.getpid())
    return {
        "pid": os.getpid(),
        "start": me.start if me else None,
        "boot_id": machine_boot_id(),
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "since_ns": time.time_ns(),
        **facts,
    }


def process_of(holder: dict[str, Any]) -> ProcessId | None:
    """Return the process identity of a holder, or None where it does not name one."""
    try:
        return ProcessId(int(holder["pid"]), int(holder["start"]), str(holder["boot_id"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def holder_alive(holder: dict[str, Any]) -> bool:
    """Whether the process that a holder names runs on this machine."""
    process = process_of(holder)
    return process is not None and _runs(process)


def _runs(process: ProcessId) -> bool:
    return process.boot_id == machine_boot_id() and is_alive(process.pid, process.start)


def controller_alive(run_dir: Path) -> bool:
    """Whether the controller that began the run's session may still run.

    A session file that is missing or damaged proves no death; the next controller fences then.
    """
    process = process_of(read_holder(run_dir / ".session.json"))
    return process is None or _runs(process)


def say_holder(holder: dict[str, Any]) -> str:
    """Return a holder in words."""
    try:
        began = time.localtime(int(holder["since_ns"]) / 1e9)
        since = time.strftime("%Y-%m-%d %H:%M:%S%z", began)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        since = "?"
    return (
        f"pid {holder.get('pid', '?')} of {holder.get('user', '?')} on "
        f"{holder.get('host', '?')} since {since}"
    )


def try_lock(path: Path, holder: dict[str, Any]) -> TextIO | None:
    """Return the open, locked file with `holder` written into it, or None where it is taken.

    Raises:
        ResultsError: the file cannot be made or written.
    """
    handle = None
    try:
        while handle is None or not _lies_at(path, handle):
            _drop(handle)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Open for as long as the lock is held.
            handle = open(path, "a+", encoding="utf-8", opener=regular)  # noqa: SIM115
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        handle.seek(0)
        handle.truncate()
        handle.write(json.dumps(holder))
        handle.flush()
    except BlockingIOError:
        _drop(handle)
        return None
    except OSError as error:
        _drop(handle)
        raise ResultsError(
            f"the lock cannot be written: {error.strerror}",
            str(path),
            "let this user write there, and see that the disk has room and takes file locks",
        ) from error
    return handle


def _lies_at(path: Path, handle: TextIO) -> bool:
    """Whether an open file is still the one of that name: its last holder may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle.fileno()))
    except FileNotFoundError:
        return False


def _drop(handle: TextIO | None) -> None:
    """Close a file, also where the disk takes no more of what was written to it."""
    if handle is not None:
        with contextlib.suppress(OSError):
            handle.close()


def read_holder(path: Path) -> dict[str, Any]:
    """Return the holder that a lock file names; empty where it names none."""
    try:
        data = read_json_value(path)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


@contextlib.contextmanager
def server_lock(run_dir: Path, job: str, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold the server of a run for as long as a job measures.

    Raises:
        LockedError: another job held it for longer than `timeout_s` seconds.
        ResultsError: the lock's file cannot be written.
    """
    path = run_dir / ".server.lock"
    deadline = time.monotonic() + timeout_s
    while (handle := try_lock(path, describe_self(job=job))) is None:
        if time.monotonic() > deadline:
            holder = read_holder(path)
            raise LockedError(
                f"the server is held by {say_holder(holder)} for {holder.get('job', '?')}",
                str(path),
                "wait for that job, or end the process if it is not one of this run",
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        handle.close()


def fence_orphan(run_dir: Path, timeout_s: float = 10.0) -> dict[str, Any] | None:
    """Kill a job that a dead controller left holding the server; return its holder record.

    Only the process whose pid, start time and boot id are those recorded is killed.

    Raises:
        LockedError: the lock is still held afterwards, or its holder is not ours to end.
    """
    path = run_dir / ".server.lock"
    deadline = time.monotonic() + timeout_s
    fenced = None
    while (handle := try_lock(path, describe_self(job="fence"))) is None:
        holder = read_holder(path)
        process = process_of(holder)
        if process is not None and _runs(process) and process.pid != os.getpid():
            if not _kill(process.pid):
                raise LockedError(
                    f"the server is held by {say_holder(holder)}, a process of another user",
                    str(path),
                    "ask that user to end it, then start again",
                )
            fenced = holder
        if time.monotonic() > deadline:
            raise LockedError(
                f"the server is still held by {say_holder(holder)}",
                str(path),
                "end that process, then start again",
            )
        time.sleep(0.05)
    handle.seek(0)
    handle.truncate()
    handle.close()
    return fenced


def _kill(pid: int) -> bool:
    """Kill a process that may have ended by now; return whether that was allowed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True
