"""`sweep --boot-id ID`: end what is left of one start of a server whose supervisor is gone.

A process belongs to it when it inherited the mark that the supervisor put into the environment of
the server; that also finds daemons and workers which left its process group and its session.
"""

import argparse
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Set, Tuple

from .ident import Stat, all_stats
from .supervise import AFTER_KILL_S, MARKER, send

POLL_S = 0.05


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


def main(argv: List[str]) -> int:
    """Run `sweep` and print `{"boot_id", "met": [...], "left": [...]}`; 1 when some are left."""
    parser = argparse.ArgumentParser(prog="sweep")
    parser.add_argument("--boot-id", required=True)
    parser.add_argument("--grace", type=float, default=10.0, help="seconds from TERM to KILL")
    arguments = parser.parse_args(argv)
    met, left = sweep(arguments.boot_id, arguments.grace)
    result: Dict[str, Any] = {"schema": 1, "boot_id": arguments.boot_id}
    for name, stats in (("met", met), ("left", left)):
        result[name] = [{"pid": stat.pid, "start": stat.start, "comm": stat.comm} for stat in stats]
    json.dump(result, sys.stdout)
    print()
    return 1 if left else 0
