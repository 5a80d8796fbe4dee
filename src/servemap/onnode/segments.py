"""`segments`: what a server leaves behind, noted while it runs, removed after it.

`segments --file F --boot-id ID [--log LOG]` adds to F the files of /dev/shm that processes with the
mark of a start map now, the sockets that they have in the file system (/proc/net/unix, unix(7)),
and the file by which the ranks met if their log names one (`init_method` of torch.distributed).
Some engines name none of these after themselves, and a process that is killed removes none.
`segments --file F --remove [--log LOG]` removes those of them that are still the same files, belong
to this user and are in use by no process; it prints `{"removed": [paths], "kept": [paths]}`.
"""

import argparse
import json
import os
import re
import stat
import sys
from typing import Any, Dict, List, Set

from .ident import all_stats
from .sweep import marked

FOLDER = "/dev/shm/"
SOCKETS = "/proc/net/unix"
MEETING = re.compile(r"\bdistributed_init_method=file://(/[^\s'\",)]+)")
LOG_BYTES = 1 << 24


def mapped(pids: List[int]) -> Set[str]:
    """Return the files of /dev/shm that processes map, as far as this user may look into them."""
    found: Set[str] = set()
    for pid in pids:
        try:
            with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape") as handle:
                lines = handle.read().split("\n")
        except OSError:
            continue
        paths = [line.split(None, 5)[5] for line in lines if FOLDER in line]
        found.update(path for path in paths if path.startswith(FOLDER))
    return {path for path in found if not path.endswith(" (deleted)")}


def bound() -> Dict[str, str]:
    """Return the sockets of this machine that have a path, as {socket's inode: path}."""
    try:
        with open(SOCKETS, encoding="utf-8", errors="surrogateescape") as handle:
            rows = [line.rstrip("\n").split(None, 7) for line in handle]
    except OSError:
        return {}
    return {row[6]: row[7] for row in rows if len(row) == 8 and row[7].startswith("/")}


def sockets(pids: List[int]) -> Set[str]:
    """Return the paths of sockets that processes hold, as far as this user may look into them."""
    paths = bound()
    found: Set[str] = set()
    for pid in pids:
        folder = "/proc/%d/fd" % pid
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink("%s/%s" % (folder, name))
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in paths:
                found.add(paths[target[8:-1]])
    return found


def met(log: str) -> Set[str]:
    """Return the files by which ranks met, as their log says at its beginning."""
    try:
        with open(log, "rb") as handle:
            return set(MEETING.findall(handle.read(LOG_BYTES).decode("utf-8", "replace")))
    except OSError:
        return set()


def read(path: str) -> Dict[str, int]:
    """Return {file: its inode} as noted; empty where nothing was."""
    try:
        with open(path, encoding="utf-8") as handle:
            data: Any = json.load(handle)
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(name): inode for name, inode in data.items() if isinstance(inode, int)}


def note(path: str, boot_id: str, log: str) -> Dict[str, int]:
    """Add what the processes of a start use now to the note at `path`; return it."""
    known = read(path)
    pids = [one.pid for one in marked(boot_id)]
    for name in mapped(pids) | sockets(pids) | met(log):
        try:
            known[name] = os.lstat(name).st_ino
        except OSError:
            continue
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(known, handle)
    os.replace(path + ".new", path)
    return known


def remove(path: str, log: str) -> Dict[str, List[str]]:
    """Remove what was noted at `path` and is nobody's any more."""
    known = read(path)
    meetings = met(log)
    used = mapped([one.pid for one in all_stats()]) | set(bound().values()) if known else set()
    result: Dict[str, List[str]] = {"removed": [], "kept": []}
    for name, inode in sorted(known.items()):
        try:
            found = os.lstat(name)
            ours = name.startswith(FOLDER) or name in meetings or stat.S_ISSOCK(found.st_mode)
            if found.st_ino != inode or not ours:
                continue
            if name in used or found.st_uid != os.geteuid():
                result["kept"].append(name)
                continue
            os.unlink(name)
        except OSError:
            continue
        result["removed"].append(name)
    return result


def main(argv: List[str]) -> int:
    """Run `segments` (see the module's docstring)."""
    parser = argparse.ArgumentParser(prog="segments")
    parser.add_argument("--file", required=True)
    parser.add_argument("--log", default="")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--boot-id")
    what.add_argument("--remove", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.remove:
        json.dump(remove(arguments.file, arguments.log), sys.stdout)
    else:
        json.dump(sorted(note(arguments.file, arguments.boot_id, arguments.log)), sys.stdout)
    print()
    return 0
