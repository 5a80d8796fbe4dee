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
import json
import os
import sys
from typing import List, Optional

from .hold_file import Found, Record, guarded, read, touch, write
from .ident import machine_boot_id, read_stat

FOLDERS = ("/tmp/servemap-lease", "/var/tmp/servemap-lease", "/dev/shm/servemap-lease")
IDENTITY = ("pid", "start", "boot_id", "pid_ns")


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
            with guarded(folder):
                held = _held(request)
                if held is not None:
                    return held
                foreign = write(path, dict(owner, node_boot_id=machine_boot_id()))
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
            if not _is_of(read(path), owner):
                continue
            with guarded(folder):
                found = read(path)
                boot_id = found.record.get("node_boot_id") if found else None
                if _is_of(found, owner) and boot_id == machine_boot_id():
                    touch(path)
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
        found = read(_lease_path(folder))
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


def _remove(path: str, owner: Record) -> None:
    if not _is_of(read(path), owner):
        return
    with guarded(os.path.dirname(path)):
        if _is_of(read(path), owner):
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
