"""`patch-notes FOLDER PID...`: what processes of a server noted of their imports (see patch_hook).

Prints `{"schema": 1, "processes": [{"pid", "program", "began", "imports": [{"module", "file",
"sha256", "inherited"}]}]}`, an entry for each of the processes that runs. `program` is the file
that it executes, null where this user may not see it; `began` is false where the hook did not run.
"""

import argparse
import json
import os
from typing import Any, Dict, List, Optional, Tuple

from .ident import read_stat

Known = Dict[Tuple[int, int], List[Dict[str, Any]]]


def read_notes(folder: str) -> Known:
    """Return what each process that began imported, by its pid and start time.

    The last import of a module counts. Lines that are none are passed over.
    """
    path = os.path.join(folder, "notes")
    known: Dict[Tuple[int, int], Dict[str, Dict[str, Any]]] = {}
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as handle:
            lines = handle.read().split("\n")
    except OSError:
        return {}
    for line in lines:
        fields = line.split("\t")
        if len(fields) < 3 or not (fields[0].isdecimal() and fields[1].isdecimal()):
            continue
        process = (int(fields[0]), int(fields[1]))
        if fields[2] == "began":
            known[process] = {}
        elif len(fields) == 6 and process in known:
            how, digest, file, module = fields[2:]
            known[process][module] = {
                "module": module,
                "file": file,
                "sha256": digest,
                "inherited": how == "inherited",
            }
    return {process: list(imports.values()) for process, imports in known.items()}


def own_pid(pid: int) -> int:
    """Return a process's number as it knows it itself: another one in a container."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as handle:
            for line in handle:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return pid


def _program(pid: int) -> Optional[str]:
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return None


def look(folder: str, pids: List[int]) -> List[Dict[str, Any]]:
    """Return what the processes of these numbers noted; those that are gone are left out."""
    known = read_notes(folder)
    found = []
    for pid in pids:
        stat = read_stat(pid)
        if stat is not None and stat.state not in "ZX":
            said = known.get((own_pid(pid), stat.start))
            found.append(
                {
                    "pid": pid,
                    "program": _program(pid),
                    "began": said is not None,
                    "imports": said or [],
                }
            )
    return found


def main(argv: List[str]) -> int:
    """Run `patch-notes` and print its JSON."""
    parser = argparse.ArgumentParser(prog="patch-notes")
    parser.add_argument("folder")
    parser.add_argument("pids", type=int, nargs="*", metavar="PID")
    arguments = parser.parse_args(argv)
    processes = look(arguments.folder, arguments.pids)
    print(json.dumps({"schema": 1, "processes": processes}, sort_keys=True))
    return 0
