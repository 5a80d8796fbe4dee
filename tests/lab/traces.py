"""What a lab leaves on the machine: finding it by the lab's own marks, and removing it.

A lab's folder is its identity. Its keeper holds a lock on the folder for life, and every process of
the lab outside its nodes carries the folder's path in its environment.
"""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

TOKEN = "SERVEMAP_LAB"
PREFIX = "servemap-lab-"


def with_token(folder: Path) -> list[psutil.Process]:
    """Return the processes that carry a lab's mark."""
    mark = f"{TOKEN}={folder}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def in_namespace(pid: int, kind: str) -> list[psutil.Process]:
    """Return the processes in a living process' namespace: net, pid and so on."""
    own = Path(f"/proc/{pid}/ns/{kind}").stat().st_ino
    found = []
    for process in psutil.process_iter():
        try:
            if Path(f"/proc/{process.pid}/ns/{kind}").stat().st_ino == own:
                found.append(process)
        except OSError:
            continue
    return found


def kill_all(find: Callable[[], list[psutil.Process]], timeout_s: float = 60) -> None:
    """Kill what is found until nothing is: a process may have forked in the meantime."""
    deadline = time.monotonic() + timeout_s
    while (found := find()) and time.monotonic() < deadline:
        for process in found:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.01)


def leaks(folder: Path) -> list[str]:
    """Return in words what a lab left: processes, mounts, its folder."""
    found = [f"process {process.pid}" for process in with_token(folder)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if str(folder) in line]
    if folder.exists():
        found.append(f"folder {folder}")
    return found


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[int | None]:
    """Hold the lock of a folder; yields its descriptor, None where another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def sweep() -> list[Path]:
    """Remove what is left of labs whose keeper is gone; call it with `new_folder`'s lock held."""
    swept = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with locked(folder, wait=False) as descriptor:
                if descriptor is not None:
                    kill_all(partial(with_token, folder))
                    shutil.rmtree(folder)
                    swept.append(folder)
        except FileNotFoundError:
            continue  # its keeper removed it just now
    return swept


def new_folder() -> tuple[Path, int]:
    """Sweep, then return a new lab's folder and the descriptor that holds its lock."""
    with locked(Path(tempfile.gettempdir()), wait=True):
        sweep()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return folder, descriptor
