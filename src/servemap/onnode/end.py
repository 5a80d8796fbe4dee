"""`end --pid P --start S --boot-id B --grace G`: stop one process and the session that it led."""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from typing import List

from .ident import all_stats, is_alive, machine_boot_id

POLL_S = 0.05
AFTER_KILL_S = 5.0


def remains(pid: int, start: int) -> List[int]:
    """Return the pids of the process and of the session it led that still run.

    A start time before the leader's means that the number was given to another session.
    """
    return [
        stat.pid
        for stat in all_stats()
        if stat.state not in "ZX"
        and (
            (stat.pid, stat.start) == (pid, start) or (stat.session == pid and stat.start >= start)
        )
    ]


def _send(pid: int, number: int) -> None:
    # It may be gone, or not ours: what remains is the answer.
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _wait(pid: int, start: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while remains(pid, start):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def end(pid: int, start: int, boot_id: str, grace_s: float) -> bool:
    """Send TERM to exactly this process, wait, kill what is left; say whether all is gone."""
    if boot_id != machine_boot_id():
        return True
    if is_alive(pid, start):
        _send(pid, signal.SIGTERM)
        _wait(pid, start, grace_s)
    for left in remains(pid, start):
        _send(left, signal.SIGKILL)
    return _wait(pid, start, AFTER_KILL_S)


def main(argv: List[str]) -> int:
    """Run `end` and print `{"gone": bool}`; 1 when something is left."""
    parser = argparse.ArgumentParser(prog="end")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--start", type=int, required=True, help="clock ticks, /proc/PID/stat")
    parser.add_argument("--boot-id", required=True)
    parser.add_argument("--grace", type=float, required=True, help="seconds from TERM to KILL")
    given = parser.parse_args(argv)
    gone = end(given.pid, given.start, given.boot_id, given.grace)
    json.dump({"gone": gone}, sys.stdout)
    print()
    return int(not gone)
