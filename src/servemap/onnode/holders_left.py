"""What is left of servers of ours on this machine, and which processes have device files open."""

import fnmatch
import json
import os
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .facts_software import CONTAINER_TOOLS, container_rows
from .ident import all_stats, is_alive, machine_boot_id, mark_of, read_stat
from .probe import list_folder, read_file, run_tool
from .supervise import MARKER
from .view import Process, open_files

LABEL = "servemap.boot"
STATE, SPEC = ".state.json", ".spec.json"
# (device files, whether only programs that compute open them: monitors hold the others, too)
DEVICES = (
    ("/dev/nvidia-uvm", True),
    ("/dev/nvidia[0-9]*", False),
    ("/dev/kfd", True),
    ("/dev/dri/renderD*", False),
    ("/dev/davinci[0-9]*", True),
    ("/dev/iluvatar*", False),
    ("/dev/bi[0-9]*", False),
)


def device(path: str) -> Optional[Tuple[str, bool]]:
    """Return an accelerator's device file and whether only computing opens it; None for others."""
    path = path.split(" (deleted)")[0]
    for pattern, computes in DEVICES:
        if fnmatch.fnmatchcase(path, pattern):
            return path, computes
    return None


def open_devices(processes: Iterable[Process]) -> Tuple[Dict[int, Dict[str, bool]], int]:
    """Return {pid: {device file: computes}} and how many processes could not be looked into."""
    found: Dict[int, Dict[str, bool]] = {}
    hidden = 0
    for process in processes:
        links = open_files(process.pid)
        if links is None:
            # Threads of the kernel have no open files.
            kernel = 2 in (process.pid, process.ppid) and process.command.startswith("(")
            hidden += not kernel and os.path.exists("/proc/%d" % process.pid)
            continue
        devices = dict(one for one in map(device, links) if one is not None)
        if devices:
            found[process.pid] = devices
    return found, hidden


def marks(pids: Iterable[int]) -> Dict[int, str]:
    """Return {pid: boot id} of the processes that carry the mark of a server's start."""
    found = {pid: mark_of(pid, MARKER) for pid in pids}
    return {pid: boot_id for pid, boot_id in found.items() if boot_id is not None}


def known_boots(workdirs: List[str]) -> List[str]:
    """Return the ids of the starts that the run's folders on this machine tell of."""
    found: Set[str] = set()
    for workdir in workdirs:
        for name in list_folder(os.path.join(workdir, "server")):
            found.update(name[: -len(end)] for end in (STATE, SPEC) if name.endswith(end))
    return sorted(found)


def recorded(workdirs: List[str]) -> Dict[int, str]:
    """Return {pid: boot id} of supervisors, and of what is below them, by their state files."""
    found: Dict[int, str] = {}
    for workdir in workdirs:
        folder = os.path.join(workdir, "server")
        for name in list_folder(folder):
            if name.endswith(STATE):
                for pid in _of_state(os.path.join(folder, name)):
                    found[pid] = name[: -len(STATE)]
    return found


def _of_state(path: str) -> Set[int]:
    """Return the pids that a supervisor's state file stands for and that still run."""
    try:
        state = json.loads(read_file(path) or "")
        owner = os.stat(path).st_uid
        if state["machine_boot_id"] != machine_boot_id():
            return set()
        left = (state.get("exit") or {}).get("left", [])
        below = state.get("descendants") or []
        identities = [state.get("supervisor"), state.get("server"), *left, *below]
        alive = {one["pid"] for one in identities if one and is_alive(one["pid"], one["start"])}
        if state.get("ended_ns") is None and state.get("server"):
            alive |= _group(state["server"]["pgid"], state["server"]["start"], owner)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()
    return alive


def _group(pgid: int, start: int, owner: int) -> Set[int]:
    """Return the running members of a server's process group and session.

    A leader with another start time means that the number was given anew.
    """
    leader = read_stat(pgid)
    if leader is not None and leader.start != start:
        return set()
    found = set()
    for stat in all_stats():
        if pgid in (stat.pgrp, stat.session) and stat.state not in "ZX" and stat.start >= start:
            try:
                if os.stat("/proc/%d" % stat.pid).st_uid == owner:
                    found.add(stat.pid)
            except OSError:
                continue
    return found


def _label(labels: Any) -> Optional[str]:
    """Return the boot id among a container's labels: an object (podman) or a text (docker)."""
    if isinstance(labels, str):
        labels = dict(one.partition("=")[::2] for one in labels.split(","))
    value = labels.get(LABEL) if isinstance(labels, dict) else None
    return value if isinstance(value, str) else None


def parse_labelled(text: str) -> List[Dict[str, Any]]:
    """Parse `ps --format json` of docker or podman into `{"id", "name", "boot_id", "pid"}`.

    `pid` is null where the tool does not say it. ValueError if it is neither form.
    """
    found = []
    for row in container_rows(text):
        boot_id = _label(row.get("Labels"))
        identity = row.get("Id") or row.get("ID")
        if boot_id is None or not isinstance(identity, str):
            continue
        names = row.get("Names")
        name = ",".join(map(str, names)) if isinstance(names, list) else names
        pid = row.get("Pid")
        found.append(
            {
                "id": identity,
                "name": name if isinstance(name, str) else identity[:12],
                "boot_id": boot_id,
                "pid": pid if isinstance(pid, int) and pid > 0 else None,
            }
        )
    return found


def containers() -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """Return our running containers and {tool: reason} where a tool that is there fails."""
    found: Dict[str, Dict[str, Any]] = {}
    failed: Dict[str, str] = {}
    for tool in CONTAINER_TOOLS:
        layout = "{{json .}}" if tool == "docker" else "json"
        argv = [tool, "ps", "--no-trunc", "--filter", "label=" + LABEL, "--format", layout]
        record = run_tool(argv)
        if "is not on PATH" in record.get("error", ""):
            continue
        if record.get("code") != 0:
            failed[tool] = (record.get("error") or record["stderr"].strip())[:300]
            continue
        try:
            for one in parse_labelled(record["stdout"]):
                found.setdefault(one["id"], dict(one, runtime=tool))
        except (ValueError, RecursionError) as error:
            failed[tool] = "%s ps gave no JSON: %s" % (tool, error)
    return list(found.values()), failed


def in_containers(pids: Iterable[int], rows: List[Dict[str, Any]]) -> Dict[int, str]:
    """Return {pid: boot id} of processes whose control group is that of one of our containers."""
    found = {}
    for pid in pids if rows else ():
        group = read_file("/proc/%d/cgroup" % pid) or ""
        for row in rows:
            if row["id"] in group or row["pid"] == pid:
                found[pid] = row["boot_id"]
    return found
