"""`hold take|check|renew|release`: who drives this machine, in one file that all users can read.

The request on stdin is `{"owner": RECORD, "gone": IDENTITY or null}`, the answer on stdout one of
`{"path": FILE or null}` (done), `{"held": RECORD}` (a living campaign holds it; with `path`,
`age_s` and `stale_in_s`), `{"foreign": RECORD}` (a stale lease that only its owner can remove) and
`{"error": TEXT, "path": FILE}`. A RECORD holds pid, start, boot_id and pid_ns of the controller,
its run, user, host, since_ns and ttl_s; the file adds `node_boot_id`.

The lease's time of change is no date but this machine's monotonic clock when it was last renewed:
a step of the wall clock ends no lease, and a renewal needs no room on a full disk.
"""

import argparse
import errno
import fcntl
import json
import os
import stat
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from .ident import machine_boot_id, read_stat

FOLDERS = ("/tmp/servemap-lease", "/var/tmp/servemap-lease", "/dev/shm/servemap-lease")
IDENTITY = ("pid", "start", "boot_id", "pid_ns")
GUARD_S = 10.0
MAX_BYTES = 65536
NO_LEASE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EINVAL)

Record = Dict[str, Any]


class Found(NamedTuple):
    """A lease file: what it says, and how many seconds ago it was renewed."""

    path: str
    record: Record
    age_s: float


def folders() -> List[str]:
    """Return where a lease may lie: `SERVEMAP_LEASE_DIR`, else the first that can be written."""
    named = os.environ.get("SERVEMAP_LEASE_DIR")
    return [os.path.realpath(named)] if named else list(FOLDERS)


def pid_namespace() -> str:
    """Return the namespace that this process' pids are of; those of another mean nothing here."""
    return os.readlink("/proc/self/ns/pid")


def proves_death(record: Record) -> bool:
    """Say whether the process of a record was of this machine, seen from here, and is gone."""
    pid, start = record.get("pid"), record.get("start")
    if not isinstance(pid, int) or not isinstance(start, int):
        return True
    if (record.get("boot_id"), record.get("pid_ns")) != (machine_boot_id(), pid_namespace()):
        return False
    seen = read_stat(pid)
    if seen is not None:
        return seen.start != start or seen.state in "ZX"
    try:
        os.kill(pid, 0)  # /proc may hide the processes of other users
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def take(request: Record) -> Record:
    """Take the lease for the owner, unless a living one holds it."""
    owner = request["owner"]
    failed: Optional[Record] = None
    for folder in folders():
        path = _lease_path(folder)
        try:
            with _guard(folder):
                held = _held(request)
                if held is not None:
                    return held
                foreign = _write(path, dict(owner, node_boot_id=machine_boot_id()))
                if foreign is not None:
                    return foreign
            # Who could not write here took no heed of this guard: both then give way.
            held = _held(request)
            if held is not None:
                _remove(path, owner)
                return held
        except OSError as error:
            failed = failed or _problem(error, path)
            continue
        return {"path": path}
    assert failed is not None
    return failed


def check(request: Record) -> Record:
    """Say who holds the lease; take and write nothing."""
    try:
        return _held(request) or {"path": None}
    except OSError as error:
        return _problem(error, _lease_path(folders()[0]))


def renew(request: Record) -> Record:
    """Note that the owner still lives; a lease that is gone, as after a boot, is taken again."""
    owner = request["owner"]
    for folder in folders():
        path = _lease_path(folder)
        try:
            if not _is_of(_read(path), owner):
                continue
            with _guard(folder):
                found = _read(path)
                if _is_of(found, owner) and found.record.get("node_boot_id") == machine_boot_id():
                    _touch(path)
                    return {"path": path}
        except OSError as error:
            return _problem(error, path)
    return take(request)


def release(request: Record) -> Record:
    """Give back what the owner holds, and nothing else."""
    answer: Record = {"path": None}
    for folder in folders():
        path = _lease_path(folder)
        try:
            _remove(path, request["owner"])
        except OSError as error:
            answer = _problem(error, path)
    return answer


ACTIONS = {"take": take, "check": check, "renew": renew, "release": release}


def _lease_path(folder: str) -> str:
    return os.path.join(folder, "lease.json")


def _problem(error: OSError, path: str) -> Record:
    return {"error": error.strerror or str(error), "path": path}


def _held(request: Record) -> Optional[Record]:
    """Return the answer that names a living holder other than the owner.

    Raises:
        OSError: a lease is there that cannot be read, so that nobody knows.
    """
    for folder in folders():
        found = _read(_lease_path(folder))
        if found is None or _same(found.record, request["owner"]):
            continue
        if not _stale(found, request.get("gone") or {}):
            left_s = found.record["ttl_s"] - found.age_s
            facts = {"path": found.path, "age_s": found.age_s, "stale_in_s": left_s}
            return {"held": dict(found.record, **facts)}
    return None


def _stale(found: Found, gone: Record) -> bool:
    """Say whether nobody stands behind a lease; `gone` is who the asker knows to be dead."""
    record = found.record
    ttl_s = record.get("ttl_s")
    return (
        record.get("node_boot_id") != machine_boot_id()
        or _same(record, gone)
        or proves_death(record)
        or not isinstance(ttl_s, (int, float))
        or not 0 <= found.age_s <= ttl_s
    )


def _same(record: Record, other: Record) -> bool:
    """Say whether two records name the same process for ever."""
    return all(other.get(key) is not None and record.get(key) == other[key] for key in IDENTITY)


def _is_of(found: Optional[Found], owner: Record) -> bool:
    return (
        found is not None
        and _same(found.record, owner)
        and found.record.get("run") == owner.get("run")
    )


def _read(path: str) -> Optional[Found]:
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
    if os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, mode)


@contextmanager
def _guard(folder: str) -> Iterator[None]:
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


def _write(path: str, record: Record) -> Optional[Record]:
    """Put a lease in place of a stale one, or answer whose it is if that may not be replaced."""
    descriptor, temporary = tempfile.mkstemp(".tmp", "lease.", os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(record))
            handle.flush()
            os.fchmod(descriptor, 0o644)
        _touch(temporary)
        try:
            os.replace(temporary, path)
        except PermissionError:
            found = _read(path)
            return {"foreign": dict(found.record if found else {}, path=path)}
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return None


def _touch(path: str) -> None:
    os.utime(path, ns=(time.time_ns(), time.monotonic_ns()), follow_symlinks=False)


def _remove(path: str, owner: Record) -> None:
    if not _is_of(_read(path), owner):
        return
    with _guard(os.path.dirname(path)):
        if _is_of(_read(path), owner):
            os.unlink(path)


def main(argv: List[str]) -> int:
    """Do what argv[0] says with the request on stdin; 2 where that is none."""
    parser = argparse.ArgumentParser(prog="hold", description="The lease of this machine.")
    parser.add_argument("action", choices=sorted(ACTIONS))
    action = parser.parse_args(argv).action
    try:
        request = json.loads(sys.stdin.read())
        if not isinstance(request["owner"], dict):
            raise TypeError("owner is no object")
    except (ValueError, KeyError, TypeError) as error:
        print("hold: not a request: %s" % error, file=sys.stderr)
        return 2
    print(json.dumps(ACTIONS[action](request)))
    return 0
