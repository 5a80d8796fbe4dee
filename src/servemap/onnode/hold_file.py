"""The lease's file: read by all users, written whole by one process at a time, led by no link."""

import errno
import fcntl
import json
import os
import stat
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, NamedTuple, Optional

GUARD_S = 10.0
MAX_BYTES = 65536
# What lies there is no lease: nothing, a folder, a socket, a pipe or device, a link.
NO_LEASE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EINVAL, errno.ELOOP)

Record = Dict[str, Any]


class Found(NamedTuple):
    """A lease file: what it says, and how many seconds ago it was renewed."""

    path: str
    record: Record
    age_s: float


def read(path: str) -> Optional[Found]:
    """Return a lease, damaged ones as an empty record; None where there is none."""
    try:
        descriptor = _open_regular(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in NO_LEASE:
            return None
        raise
    with os.fdopen(descriptor, "rb") as handle:
        renewed_ns = os.fstat(descriptor).st_mtime_ns
        data = handle.read(MAX_BYTES)
    try:
        record = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        record = None
    age_s = (time.monotonic_ns() - renewed_ns) / 1e9
    return Found(path, record if isinstance(record, dict) else {}, age_s)


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file and no link, so that no other user leads us to a file of ours."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    text = "not a regular file" if number == errno.EINVAL else os.strerror(number)
    raise OSError(number, text, path)


def _share(descriptor: int, mode: int) -> None:
    """Open what is ours to all users, whatever the umask; a sticky folder stays as it is."""
    facts = os.fstat(descriptor)
    if facts.st_uid == os.getuid() and not facts.st_mode & stat.S_ISVTX:
        os.fchmod(descriptor, mode)


@contextmanager
def guarded(folder: str) -> Iterator[None]:
    """Hold the folder's guard, so that one process at a time judges and writes."""
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _share(descriptor, 0o777)
    finally:
        os.close(descriptor)
    guard = os.path.join(folder, "guard")
    descriptor = _open_regular(guard, os.O_RDONLY | os.O_CREAT)
    try:
        _share(descriptor, 0o644)
        _lock(descriptor, guard)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, guard: str) -> None:
    deadline = time.monotonic() + GUARD_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError(errno.EAGAIN, "another process holds its guard", guard) from None
            time.sleep(0.01)
        else:
            return


def write(path: str, record: Record) -> Optional[Record]:
    """Put a lease in place of a stale one, or answer whose it is if that may not be replaced."""
    descriptor, temporary = tempfile.mkstemp(".tmp", "lease.", os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(record))
            handle.flush()
            os.fchmod(descriptor, 0o644)
        touch(temporary)
        try:
            os.replace(temporary, path)
        except PermissionError:
            found = read(path)
            return {"foreign": dict(found.record if found else {}, path=path)}
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return None


def touch(path: str) -> None:
    """Note on a lease that it was renewed now, by the monotonic clock."""
    os.utime(path, ns=(time.time_ns(), time.monotonic_ns()), follow_symlinks=False)
