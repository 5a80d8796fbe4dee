"""Ending all that a supervisor is above of, and collecting what has ended."""

import os
import signal
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from .ident import Stat, all_stats, descendants

AFTER_KILL_S = 5.0


def reap(server_pid: int) -> Tuple[Optional[int], bool]:
    """Collect ended children; return (the server's wait status if it ended, are children left)."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == server_pid:
            status = wait_status


def exit_record(wait_status: Optional[int], reason: str) -> Dict[str, Any]:
    """Return the `exit` object for a wait status; None where the process would not end."""
    if wait_status is None:
        return {"code": None, "signal": None, "reason": reason}
    if os.WIFSIGNALED(wait_status):
        return {"code": None, "signal": os.WTERMSIG(wait_status), "reason": reason}
    return {"code": os.WEXITSTATUS(wait_status), "signal": None, "reason": reason}


def send(stats: List[Stat], number: int, done: Set[Tuple[int, int]]) -> None:
    """Signal each process once per `done` set, members of it left out."""
    for stat in stats:
        if (stat.pid, stat.start) not in done:
            done.add((stat.pid, stat.start))
            try:
                os.kill(stat.pid, number)
            except OSError:
                continue


def stop_all(server_pid: int, grace_s: float) -> Tuple[Optional[int], List[Stat]]:
    """End every descendant: TERM, `grace_s` to leave, KILL until none is left.

    As the subreaper of all of them this process sees daemons too, whatever group they moved to.

    Returns:
        the server's wait status if it was collected here, and what even KILL did not end.
    """
    started = time.monotonic()
    status: Optional[int] = None
    termed: Set[Tuple[int, int]] = set()
    while True:
        ended, children = reap(server_pid)
        status = ended if ended is not None else status
        if not children:
            return status, []
        running = descendants(os.getpid(), all_stats())
        elapsed = time.monotonic() - started
        if elapsed < grace_s:
            send(running, signal.SIGTERM, termed)
        elif elapsed < grace_s + AFTER_KILL_S:
            send(running, signal.SIGKILL, set())
        else:
            return status, running
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)


def collect(server_pid: int, seconds: float, *, everything: bool = False) -> Optional[int]:
    """Wait for the server, or for `everything` that it started, to end by itself.

    Returns:
        the server's wait status if it was collected here.
    """
    deadline = time.monotonic() + seconds
    status: Optional[int] = None
    while True:
        ended, children = reap(server_pid)
        status = ended if ended is not None else status
        done = not children if everything else status is not None
        if done or time.monotonic() > deadline:
            return status
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)
