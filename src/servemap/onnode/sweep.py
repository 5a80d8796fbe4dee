"""`sweep --boot-id ID`: end what is left of one start of a server whose supervisor is gone.

A process belongs to it when it inherited the mark that the supervisor put into the environment of
the server; that also finds daemons and workers which left its process group and its session. Those
that left their environment, too, are known from what the supervisor noted (`--state`), as is the
folder of their temporary files. A container belongs to it by its label, whichever runtime has it.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .container import RuntimeFailedError, end_all, find
from .ident import Stat, all_stats, descendants, machine_boot_id, mark_of
from .marked import TOOL_MARK, end_marked
from .probe import read_file
from .reaping import AFTER_KILL_S, send
from .supervise import MARKER
from .temporary import remove

POLL_S = 0.05
RUNTIMES = ("docker", "podman")


def marked(boot_id: str) -> List[Stat]:
    """Return the running processes that carry the mark, as far as this user may look into them."""
    return [stat for stat in running() if mark_of(stat.pid, MARKER) == boot_id]


def running() -> List[Stat]:
    """Return the processes of this machine that run, this one left out."""
    return [stat for stat in all_stats() if stat.state not in "ZX" and stat.pid != os.getpid()]


def noted(path: str) -> Set[Tuple[int, int]]:
    """Return (pid, start) of the processes below a supervisor, as its state file tells of them.

    Nothing where it cannot be read, or was written before this machine was started anew.
    """
    try:
        state = json.loads(read_file(path) or "")
        if state["machine_boot_id"] != machine_boot_id():
            return set()
        return {(one["pid"], one["start"]) for one in state["descendants"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()


def remove_temporary(path: str) -> None:
    """Remove the folder for temporary files that a supervisor's state file names."""
    try:
        folder = json.loads(read_file(path) or "")["temporary"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if isinstance(folder, str):
        remove(folder)


def of_boot(boot_id: str, known: Set[Tuple[int, int]]) -> List[Stat]:
    """Return what runs of a start: marked, or known by pid and start; and all that is below it."""
    roots = {(stat.pid, stat.start): stat for stat in marked(boot_id)}
    if known:
        stats = running()
        roots.update(
            {(s.pid, s.start): s for s in stats if (s.pid, s.start) in known},
        )
        for root in list(roots.values()):
            below = descendants(root.pid, stats)
            roots.update({(stat.pid, stat.start): stat for stat in below})
    return list(roots.values())


def sweep(
    boot_id: str, grace_s: float, state: Optional[str] = None
) -> Tuple[List[Stat], List[Stat]]:
    """End what is left of a start; return the processes met and those still there.

    `state` is the state file of its supervisor, which tells of processes that dropped the mark.
    """
    known = noted(state) if state else set()
    return end_found(lambda: of_boot(boot_id, known), grace_s)


def end_found(find: Callable[[], List[Stat]], grace_s: float) -> Tuple[List[Stat], List[Stat]]:
    """End processes until none is found: TERM, `grace_s`, KILL; return those met and those left."""
    started_s = time.monotonic()
    termed: Set[Tuple[int, int]] = set()
    met: Dict[Tuple[int, int], Stat] = {}
    while True:
        found = find()
        met.update({(stat.pid, stat.start): stat for stat in found})
        elapsed_s = time.monotonic() - started_s
        if not found or elapsed_s > grace_s + AFTER_KILL_S:
            return list(met.values()), found
        if elapsed_s < grace_s:
            send(found, signal.SIGTERM, termed)
        else:
            send(found, signal.SIGKILL, set())
        time.sleep(POLL_S)


def sweep_containers(
    boot_id: str, grace_s: float, names: List[str], become: bool
) -> Dict[str, Any]:
    """Stop and remove the labelled containers of some runtimes.

    Returns:
        `{"containers": [ids met], "containers_left": [ids], "unknown": {runtime: why}}`; a runtime
        that does not answer is unknown.
    """
    met: List[str] = []
    left: List[str] = []
    unknown: Dict[str, str] = {}
    mark = os.environ[TOOL_MARK] = uuid.uuid4().hex
    for name in names:
        runtime = ["sudo", "-n", name] if become else [name]
        try:
            met += find(runtime, boot_id)
            end_all(runtime, boot_id, grace_s)
            left += find(runtime, boot_id)
        except RuntimeFailedError as error:
            unknown[name] = str(error)
    if names:
        end_marked(mark)
    return {"containers": met, "containers_left": left, "unknown": unknown}


def main(argv: List[str]) -> int:
    """Run `sweep` and print what was met and what is left; 1 when something is left.

    Output (JSON): `{"schema", "boot_id", "met": [{"pid", "start", "comm"}], "left": [...]}` and
    what `sweep_containers` returns. Every runtime on PATH is asked unless an option tells; that the
    one named by `--runtime` does not answer counts as something left.
    """
    parser = argparse.ArgumentParser(prog="sweep")
    parser.add_argument("--boot-id", required=True)
    parser.add_argument("--grace", type=float, default=10.0, help="seconds from TERM to KILL")
    parser.add_argument("--state", help="the state file of its supervisor")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--runtime", choices=RUNTIMES, help="it ran the server: only it is asked, and must answer"
    )
    form.add_argument("--bare", action="store_true", help="the server was in no container")
    parser.add_argument("--become", action="store_true", help="call the runtime by sudo -n")
    arguments = parser.parse_args(argv)
    if arguments.runtime:
        names = [arguments.runtime]
    else:
        names = [] if arguments.bare else [name for name in RUNTIMES if shutil.which(name)]
    result: Dict[str, Any] = {"schema": 1, "boot_id": arguments.boot_id}
    # Containers first: their runtime then records how they ended.
    result.update(sweep_containers(arguments.boot_id, arguments.grace, names, arguments.become))
    met, left = sweep(arguments.boot_id, arguments.grace, arguments.state)
    if arguments.state and not left:
        remove_temporary(arguments.state)
    for name, stats in (("met", met), ("left", left)):
        result[name] = [{"pid": stat.pid, "start": stat.start, "comm": stat.comm} for stat in stats]
    json.dump(result, sys.stdout)
    print()
    unanswered = arguments.runtime in result["unknown"]
    return 1 if left or result["containers_left"] or unanswered else 0
