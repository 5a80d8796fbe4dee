"""`sweep --boot-id ID`: end what is left of one start of a server whose supervisor is gone.

A process belongs to it when it inherited the mark that the supervisor put into the environment of
the server; that also finds daemons and workers which left its process group and its session. A
container belongs to it by its label, whichever runtime has it.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
import uuid
from typing import Any, Dict, List, Set, Tuple

from .container import RuntimeFailedError, end_all, find
from .ident import Stat, all_stats
from .probe import TOOL_MARK, end_marked
from .supervise import AFTER_KILL_S, MARKER, send

POLL_S = 0.05
RUNTIMES = ("docker", "podman")


def marked(boot_id: str) -> List[Stat]:
    """Return the running processes that carry the mark, as far as this user may look into them."""
    wanted = ("%s=%s" % (MARKER, boot_id)).encode()
    found = []
    for stat in all_stats():
        if stat.state in "ZX" or stat.pid == os.getpid():
            continue
        try:
            with open("/proc/%d/environ" % stat.pid, "rb") as handle:
                variables = handle.read().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            found.append(stat)
    return found


def sweep(boot_id: str, grace_s: float) -> Tuple[List[Stat], List[Stat]]:
    """End all marked processes: TERM, `grace_s`, KILL; return those met and those still there."""
    started_s = time.monotonic()
    termed: Set[Tuple[int, int]] = set()
    met: Dict[Tuple[int, int], Stat] = {}
    while True:
        running = marked(boot_id)
        met.update({(stat.pid, stat.start): stat for stat in running})
        elapsed_s = time.monotonic() - started_s
        if not running or elapsed_s > grace_s + AFTER_KILL_S:
            return list(met.values()), running
        if elapsed_s < grace_s:
            send(running, signal.SIGTERM, termed)
        else:
            send(running, signal.SIGKILL, set())
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
    met, left = sweep(arguments.boot_id, arguments.grace)
    for name, stats in (("met", met), ("left", left)):
        result[name] = [{"pid": stat.pid, "start": stat.start, "comm": stat.comm} for stat in stats]
    json.dump(result, sys.stdout)
    print()
    unanswered = arguments.runtime in result["unknown"]
    return 1 if left or result["containers_left"] or unanswered else 0
