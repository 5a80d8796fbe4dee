"""A small process beside the supervisor that ends the container when the supervisor is killed.

A container is no descendant of its supervisor, so no death signal of the kernel reaches it. The
guard is forked, not started anew: it costs no time, holds nothing but a pipe, and cannot be kept
from running by a program file that has gone since.
"""

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Sequence

from .container import Look, RuntimeFailedError, end_all, exit_of
from .files import write_json_atomic
from .ident import is_alive, read_stat

RELEASED = b"."
AGAIN_S = 1.0


class Guard:
    """The supervisor's side; `start` before the client, so that at no time nobody watches."""

    def __init__(self, runtime: Sequence[str], boot_id: str, grace_s: float, state: str) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._writing)
                os.setsid()
                if os.read(reading, 1) != RELEASED:
                    end_orphan(runtime, boot_id, grace_s, state)
                status = 0
            except Exception as error:  # noqa: BLE001 - nobody above could say it
                print("supervise: the guard of the container: %s" % error, file=sys.stderr)
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(reading)
        stat = read_stat(self._pid)
        self._start = stat.start if stat else -1

    def alive(self) -> bool:
        """Say whether it still watches."""
        return is_alive(self._pid, self._start)

    def release(self) -> None:
        """Let it go without doing anything; the supervisor has seen to the container."""
        # It may have been killed, and collected with the other children.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writing, RELEASED)
        os.close(self._writing)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def end_orphan(runtime: Sequence[str], boot_id: str, grace_s: float, state_path: str) -> None:
    """End the container of a supervisor that is gone, and its client; note how it ended.

    The client may have been about to create the container: what it made is ended too.
    """
    ended: List[Look] = []
    reason = ""
    for grace in (grace_s, 0.0):
        try:
            ended += end_all(runtime, boot_id, grace)
        except RuntimeFailedError as error:
            reason = str(error)
        _kill_client(_read(state_path))
        time.sleep(AGAIN_S)
    state = _read(state_path)
    if not state or state.get("exit"):
        return
    state["exit"] = {"code": None, "signal": None, "reason": "supervisor_lost"}
    for look in ended[:1]:
        state["exit"].update(exit_of(look))
        state["exit"]["oom_killed"] = look.oom_killed
    if reason:
        left = {"name": state["container"]["name"], "error": reason}
        state["exit"]["containers_left"] = [left]
    state["ended_ns"] = time.time_ns()
    write_json_atomic(state_path, state)


def _kill_client(state: Dict[str, Any]) -> None:
    client = (state.get("container") or {}).get("client")
    if client and is_alive(client["pid"], client["start"]):
        # sudo's client is another user's; it ends with its container.
        with contextlib.suppress(OSError):
            os.kill(client["pid"], signal.SIGKILL)


def _read(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            state = json.load(handle)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
