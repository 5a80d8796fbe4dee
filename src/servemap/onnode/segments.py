"""`segments`: the shared memory that a server leaves behind, noted while it runs, removed after it.

`segments --file F --boot-id ID` adds to F the files of /dev/shm that processes with the mark of a
start map now; some engines name none of them after themselves and remove none of them.
`segments --file F --remove` removes those of them that are still the same files, belong to this
user and are mapped by no process; it prints `{"removed": [paths], "kept": [paths]}`.
"""

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Set, Tuple

from .ident import all_stats
from .sweep import marked

FOLDER = "/dev/shm/"


def mapped(pids: List[int]) -> Set[str]:
    """Return the files of /dev/shm that processes map, as far as this user may look into them.

    A file is known by its inode: a semaphore is mapped under a name that is then taken away
    (sem_open(3) of glibc gives it the lasting one as a second). A container's /dev/shm is another
    device, whose inodes have the same numbers.
    """
    try:
        device = os.stat(FOLDER).st_dev
    except OSError:
        return set()
    here = "%02x:%02x" % (os.major(device), os.minor(device))
    found: Set[int] = set()
    for pid in pids:
        try:
            with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape") as handle:
                lines = handle.read().split("\n")
        except OSError:
            continue
        rows = [line.split(None, 5) for line in lines if FOLDER in line]
        found.update(int(row[4]) for row in rows if row[3] == here)
    return {path for path, inode in files() if inode in found}


def files() -> List[Tuple[str, int]]:
    """Return the files of /dev/shm with their inodes."""
    found: List[Tuple[str, int]] = []
    for folder, _, names in os.walk(FOLDER):
        for name in names:
            path = os.path.join(folder, name)
            try:
                found.append((path, os.lstat(path).st_ino))
            except OSError:
                continue
    return found


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


def note(path: str, boot_id: str) -> Dict[str, int]:
    """Add what the processes of a start map now to the note at `path`; return it."""
    known = read(path)
    for name in mapped([stat.pid for stat in marked(boot_id)]):
        try:
            known[name] = os.stat(name).st_ino
        except OSError:
            continue
    with open(path + ".new", "w", encoding="utf-8") as handle:
        json.dump(known, handle)
    os.replace(path + ".new", path)
    return known


def remove(path: str) -> Dict[str, List[str]]:
    """Remove what was noted at `path` and is nobody's any more."""
    known = read(path)
    used = mapped([stat.pid for stat in all_stats()]) if known else set()
    result: Dict[str, List[str]] = {"removed": [], "kept": []}
    for name, inode in sorted(known.items()):
        try:
            found = os.lstat(name)
            if found.st_ino != inode or not name.startswith(FOLDER):
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
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--boot-id")
    what.add_argument("--remove", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.remove:
        json.dump(remove(arguments.file), sys.stdout)
    else:
        json.dump(sorted(note(arguments.file, arguments.boot_id)), sys.stdout)
    print()
    return 0
