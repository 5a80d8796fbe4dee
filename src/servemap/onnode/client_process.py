"""A load client of others as a process: started, listened to, ended; what time it used.

Whatever it does, each wait in here ends at a deadline or at once when somebody asks for it.
"""

import contextlib
import os
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .client_lines import Lines
from .end_loads import GRACE_S
from .ident import all_stats, descendants

POLL_S = 0.2
TIMEOUT = "timeout"
REST_S = 2.0
"""How long lines are taken that a client's children still print when it is gone."""

Cpu = Dict[Tuple[int, int], float]
Asked = Callable[[], Optional[str]]


class Ended(NamedTuple):
    """How a client ended: its exit code, why it was ended by us, the time used at each mark."""

    exit_code: int
    ended_by: Optional[str]
    cpu: Dict[str, Cpu]


def see_through(
    argv: List[str], env: Dict[str, str], cwd: str, lines: Lines, deadline_s: float, asked: Asked
) -> Ended:
    """Run a client to its end, its output going to `lines`.

    Args:
        argv: its command.
        env: its environment.
        cwd: its folder.
        lines: takes what it prints.
        deadline_s: when it is ended, on the monotonic clock; `ended_by` is then TIMEOUT.
        asked: says why it is to be ended now, if it is.

    Raises:
        OSError: it cannot be started.
        ValueError: its command or its environment cannot be those of a process.
    """
    process = subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines.begin(process.stdout.fileno())
    cpu: Dict[str, Cpu] = {}

    def note_cpu() -> None:
        for name in lines.marks:
            if name not in cpu:
                cpu[name] = _cpu_of(process.pid)

    def listen() -> None:
        # It may close its output and go on.
        if not lines.read(POLL_S):
            _wait(process, POLL_S)
        note_cpu()

    ended_by = await_end(process, deadline_s, asked, listen)
    # A child of the client may keep the pipe open, and print for ever.
    lines.rest(REST_S)
    note_cpu()
    return Ended(process.wait(), ended_by, cpu)


def await_end(
    process: "subprocess.Popen[bytes]",
    deadline_s: float,
    asked: Asked,
    pause: Optional[Callable[[], None]] = None,
) -> Optional[str]:
    """Wait for a process that leads a session; return why it was ended by us, if it was."""
    while process.poll() is None:
        reason = asked() or (TIMEOUT if time.monotonic() > deadline_s else None)
        if reason is not None:
            _end(process)
            return reason
        if pause is None:
            _wait(process, POLL_S)
        else:
            pause()
    return None


def window_cpu(cpu: Dict[str, Cpu], marks: Dict[str, Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the processor time between the marks `begin` and `end`: of all, of the busiest."""
    if not cpu.get("begin") or not cpu.get("end"):
        return None
    used = [seconds - cpu["begin"].get(key, 0.0) for key, seconds in cpu["end"].items()]
    return {
        "seconds": (marks["end"]["mono_ns"] - marks["begin"]["mono_ns"]) / 1e9,
        "cpu_s": round(sum(used), 3),
        "busiest_cpu_s": round(max(used, default=0.0), 3),
    }


def _wait(process: "subprocess.Popen[bytes]", limit_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit_s)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its group: TERM, a moment, KILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        _wait(process, GRACE_S)
        if process.returncode is not None:
            return
    process.wait()


def _cpu_of(pid: int) -> Cpu:
    """Return the processor time so far, in seconds, of a process and of those below it."""
    stats = all_stats()
    tick = os.sysconf("SC_CLK_TCK")
    own = [stat for stat in stats if stat.pid == pid]
    return {(s.pid, s.start): (s.utime + s.stime) / tick for s in own + descendants(pid, stats)}
