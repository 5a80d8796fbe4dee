"""`supervise --spec FILE`: run one server so that nothing of it is ever left behind.

Spec (JSON): `{"argv", "env", "cwd", "log", "state", "heartbeat", "ttl_s", "boot_id", "grace_s"}`.
The state file holds `{"schema", "boot_id", "machine_boot_id", "supervisor": {"pid", "start"},
"server": {"pid", "start", "pgid"} | null, "started_ns", "ended_ns", "exit"}`; `exit` and
`ended_ns` appear together and last, when every process of the server is gone. Processes that even
SIGKILL did not end (stuck in the driver) are named under `exit.left`. `descendants` are those that
were seen below it, `{"pid", "start"}` (see offspring). `temporary` is the folder for its temporary
files (see temporary), null for a server in a container, which has its own.

A spec with `container: {"runtime": [WORD...], "name"}` has the runtime's client (`docker run` in
the foreground, label `servemap.boot`, no `--rm`) as its `argv`. Its state also holds `container:
{"runtime", "name", "id", "pid", "client": {"pid", "start"}}`; `server` is the client until the main
process of the container is known, and that process from then on. What is stopped is the container,
by its id; `exit` is how it ended, with `oom_killed`, and its reason may also be `client_lost` (the
container went on without its client, and was stopped) or `supervisor_lost` (see container_guard).
Containers that the runtime did not end are named under `exit.containers_left`.

A spec with `hook: FOLDER` has that folder come first on the server's PYTHONPATH (see patch_hook).
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from .container import SETTLE_S
from .container_server import ContainerServer, check_container
from .files import private, read_spec, write_json_atomic
from .ident import machine_boot_id, read_stat
from .lease import Lease
from .offspring import Offspring
from .reaping import collect, exit_record, reap, send, stop_all
from .temporary import make, remove, variables

SPEC_KEYS = {
    "argv": list,
    "env": dict,
    "cwd": str,
    "log": str,
    "state": str,
    "heartbeat": str,
    "ttl_s": (int, float),
    "boot_id": str,
    "grace_s": (int, float),
}
# Every descendant inherits it, so a stray of a boot is known even when its supervisor is dead.
MARKER = "SERVEMAP_BOOT_ID"
# setproctitle, which vLLM and SGLang name their workers with, writes over the environment that
# /proc shows, and so over the mark, unless it is told not to (README of setproctitle, SPT_NOENV).
KEEP_MARK = {"SPT_NOENV": "1"}
WAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def start_server(spec: Dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Start the server in a session and process group of its own. OSError when it cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    supervisor = os.getpid()

    def in_child() -> None:
        for number in WAITED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # A supervisor that is killed can record nothing, but its server must not run on unwatched.
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)

    environment = dict(os.environ, **KEEP_MARK)
    environment.update(spec["env"])
    if spec.get("hook"):
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = spec["hook"] + (":" + given if given else "")
    environment[MARKER] = spec["boot_id"]
    with open(spec["log"], "ab", opener=private) as log:
        try:
            return subprocess.Popen(
                spec["argv"],
                cwd=spec["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=in_child,
            )
        except OSError as error:
            log.write(("supervise: cannot start the server: %s\n" % error).encode())
            raise


def watch(
    server_pid: int, lease: Lease, tick: Callable[[], Optional[float]]
) -> Tuple[Optional[int], str]:
    """Wait until the server ends, a stop is asked for or the lease is over; return why.

    `tick` says in how many seconds it wants to be called again, None when the server has ended.
    """
    while True:
        status, _children = reap(server_pid)
        if status is not None:
            return status, "exited"
        if lease.expired():
            return None, "lease_expired"
        wanted_s = tick()
        if wanted_s is None:
            return None, "exited"
        received = signal.sigtimedwait(set(WAITED), min(lease.tick_s(), wanted_s))
        if received is not None and received.si_signo in (signal.SIGTERM, signal.SIGINT):
            return None, "stopped"


def end_server(
    server_pid: int,
    status: Optional[int],
    reason: str,
    spec: Dict[str, Any],
    container: Optional[ContainerServer],
) -> Dict[str, Any]:
    """End what is left of the server and return its `exit` object."""
    of_container: Dict[str, Any] = {}
    containers_left: List[Dict[str, Any]] = []
    if container is not None:
        of_container = container.end(status is not None, spec["log"])
        if status is None:
            status = collect(server_pid, SETTLE_S)
        if status is None:
            client = read_stat(server_pid)
            send([client] if client else [], signal.SIGKILL, set())
            status = collect(server_pid, SETTLE_S)
        containers_left = container.left()
        container.release()
        # The runtime's own helpers leave after their container; a signal might stop them half-way.
        collect(server_pid, SETTLE_S, everything=True)
    ended, stuck = stop_all(server_pid, spec["grace_s"])
    found = exit_record(status if status is not None else ended, reason)
    found.update(of_container)
    if stuck:
        found["left"] = [
            {"pid": stat.pid, "start": stat.start, "comm": stat.comm} for stat in stuck
        ]
    if containers_left:
        found["containers_left"] = containers_left
    return found


def supervise(spec: Dict[str, Any]) -> int:
    """Run the server of a spec to its end and keep its state file; 0 when it was started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    me = read_stat(os.getpid())
    temporary = None if "container" in spec else make(spec["env"])
    spec = dict(spec, env=dict(spec["env"], **variables(temporary, spec["env"])))
    state: Dict[str, Any] = {
        "schema": 1,
        "boot_id": spec["boot_id"],
        "machine_boot_id": machine_boot_id(),
        "supervisor": {"pid": os.getpid(), "start": me.start if me else None},
        "server": None,
        "descendants": [],
        "temporary": temporary,
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "exit": None,
    }

    def found(container: Dict[str, Any], server: Dict[str, Any]) -> None:
        state.update(container=container, server=server)
        write_json_atomic(spec["state"], state)

    def below(descendants: List[Dict[str, int]]) -> None:
        state["descendants"] = descendants
        with suppress(OSError):  # a full disk ends no server that runs
            write_json_atomic(spec["state"], state)

    container = ContainerServer(spec, found) if "container" in spec else None
    lease = Lease(spec["heartbeat"], spec["ttl_s"])
    try:
        process = start_server(spec)
    except OSError as error:
        if container is not None:
            container.release()
        remove(temporary)
        code = 127 if isinstance(error, FileNotFoundError) else 126
        state["exit"] = {"code": code, "signal": None, "reason": "exited", "error": str(error)}
        state["ended_ns"] = time.time_ns()
        write_json_atomic(spec["state"], state)
        return 1
    try:
        born = read_stat(process.pid)
        state["server"] = {
            "pid": process.pid,
            "start": born.start if born else None,
            "pgid": process.pid,
        }
        if container is not None:
            container.started(state["server"])
            state["container"] = container.record()
        write_json_atomic(spec["state"], state)
        # What a container holds is found by its id.
        tick = container.tick if container else Offspring(os.getpid(), process.pid, below).tick
        status, reason = watch(process.pid, lease, tick)
    except OSError:
        end_server(process.pid, None, "failed", spec, container)
        remove(temporary)
        raise
    # waitpid(-1) has collected it; Popen must not look for it again.
    process.returncode = 0
    state["exit"] = end_server(process.pid, status, reason, spec, container)
    if "left" not in state["exit"]:
        remove(temporary)
    if container is not None:
        state["container"] = container.record()
    state["ended_ns"] = time.time_ns()
    write_json_atomic(spec["state"], state)
    return 0


def main(argv: List[str]) -> int:
    """Run `supervise --spec FILE`; 2 on a bad spec, 3 when the state cannot be written."""
    parser = argparse.ArgumentParser(prog="supervise")
    parser.add_argument("--spec", required=True)
    arguments = parser.parse_args(argv)
    try:
        spec = read_spec(arguments.spec, SPEC_KEYS)
        check_container(spec)
    except ValueError as error:
        print("supervise: %s" % error, file=sys.stderr)
        return 2
    try:
        return supervise(spec)
    except OSError as error:
        print("supervise: %s" % error, file=sys.stderr)
        return 3
