"""A rank's process on its node: started under the agent's supervisor, found again, stopped."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from servemap.model.errors import ConnectionLostError, LaunchError, NodeError
from servemap.nodes.base import Node, ProcessId
from servemap.server.launch import shared_memory
from servemap.server.launch.records import running_fields, state_fields

SUPERVISOR_START_S = 10.0
TOUCH_S = 10.0
END_S = 10.0
"""Time beyond the grace for a supervisor to kill what is left and write how it ended."""
CONTAINER_END_S = 60.0
"""Time beyond the grace for a runtime to stop and remove a container."""


@dataclass(frozen=True)
class Running:
    """A started rank as its node remembers it; `fingerprint` says of which spec."""

    variant: str
    fingerprint: str
    boot_id: str
    port: int
    supervisor: ProcessId
    started_ns: int


def _path(workdir: str, name: str) -> str:
    return str(PurePosixPath(workdir) / "server" / name)


def heartbeat_path(workdir: str) -> str:
    """Return the file whose age the supervisor watches."""
    return _path(workdir, "heartbeat")


def log_path(workdir: str, boot_id: str) -> str:
    """Return the log of one start on its node."""
    return _path(workdir, f"{boot_id}.log")


def spec_path(workdir: str, boot_id: str) -> str:
    """Return what the supervisor of one start is called with."""
    return _path(workdir, f"{boot_id}.spec.json")


def own_folder(node: Node, workdir: str) -> None:
    """Make the run's folder on a node, for this user alone: logs may say what is secret.

    Raises:
        NodeError: it cannot be made.
    """
    done = node.run(["install", "-d", "-m", "0700", "--", workdir], timeout_s=TOUCH_S)
    if done.code != 0:
        raise NodeError(
            f"the run's folder cannot be made: {done.stderr.strip()[-300:]}",
            f"node {node.name}: {workdir}",
            "let this user write there, and see that the disk has room",
        )


def renew(node: Node, workdir: str) -> None:
    """Tell the supervisor that somebody still wants the server; needs no room on a full disk."""
    path = heartbeat_path(workdir)
    try:
        node.write_text(path, f"{time.time_ns()}\n")
    except ConnectionLostError:
        raise
    except NodeError:
        if node.run(["touch", "-c", "--", path], timeout_s=TOUCH_S).code != 0:
            raise


class DamagedRecordError(ValueError):
    """A record on a node says nothing that can be used; its only argument is the file."""


def read_current(node: Node, workdir: str) -> Running | None:
    """Return the server that was last started on the node and not stopped since.

    Raises:
        DamagedRecordError: the record of it cannot be understood.
    """
    path = _path(workdir, "current.json")
    try:
        data = running_fields(node.read_text(path))
    except ValueError as error:
        raise DamagedRecordError(path) from error
    return (
        None if data is None else Running(**{**data, "supervisor": ProcessId(**data["supervisor"])})
    )


def read_running(node: Node, workdir: str) -> Running | None:
    """Return the same, None where the record is damaged."""
    try:
        return read_current(node, workdir)
    except DamagedRecordError:
        return None


def forget(node: Node, workdir: str) -> None:
    """Note on the node that no server of ours is left there.

    Where the disk takes no note, the old one stays: it names a process that is gone.
    """
    try:
        node.write_text(_path(workdir, "current.json"), "{}\n")
    except ConnectionLostError:
        raise
    except NodeError:
        return


def supervisor_state(node: Node, workdir: str, boot_id: str) -> dict[str, Any]:
    """Return what the supervisor last wrote of a start; empty where it wrote nothing usable."""
    try:
        return state_fields(node.read_text(state_path(workdir, boot_id)))
    except ValueError:
        return {}


def state_path(workdir: str, boot_id: str) -> str:
    """Return what the supervisor of one start writes of it."""
    return _path(workdir, f"{boot_id}.state.json")


def server_process(state: dict[str, Any]) -> ProcessId | None:
    """Return the identity of the server's own process from the supervisor's state."""
    server, boot_id = state.get("server"), state.get("machine_boot_id")
    if not server or server["start"] is None or boot_id is None:
        return None
    return ProcessId(server["pid"], server["start"], boot_id)


def alive(node: Node, workdir: str, running: Running) -> bool:
    """Whether the server's own process runs (its supervisor alone does not count)."""
    process = server_process(supervisor_state(node, workdir, running.boot_id))
    return process is not None and node.alive(process)


def start(
    node: Node,
    workdir: str,
    *,
    boot_id: str,
    variant: str,
    fingerprint: str,
    port: int,
    argv: list[str],
    env: dict[str, str],
    secrets: dict[str, str],
    cwd: str | None,
    ttl_s: float,
    grace_s: float,
    container: dict[str, Any] | None = None,
    hook: str | None = None,
) -> Running:
    """Start a rank detached under the supervisor; it outlives this process.

    `secrets` reach the server through its environment and are written to no file. For a server in
    a container, `argv` is the runtime's client, and `container` as in
    `server.container.InContainer`; `env` is then the client's. `hook` is the folder that comes
    first on its PYTHONPATH, if any.

    Raises:
        LaunchError: the supervisor did not come up.
    """
    spec = {
        "argv": argv,
        "env": env,
        "cwd": cwd or workdir,
        "log": log_path(workdir, boot_id),
        "state": state_path(workdir, boot_id),
        "heartbeat": heartbeat_path(workdir),
        "ttl_s": ttl_s,
        "boot_id": boot_id,
        "grace_s": grace_s,
        **({"container": container} if container else {}),
        **({"hook": hook} if hook else {}),
    }
    own_folder(node, workdir)
    node.write_text(spec_path(workdir, boot_id), json.dumps(spec))
    renew(node, workdir)
    supervisor_log = _path(workdir, f"{boot_id}.supervisor.log")
    supervisor = node.spawn(
        node.agent_argv("supervise", "--spec", spec_path(workdir, boot_id)),
        log=supervisor_log,
        env=secrets,
    )
    running = Running(variant, fingerprint, boot_id, port, supervisor, time.time_ns())
    node.write_text(_path(workdir, "current.json"), json.dumps(asdict(running)))
    deadline = time.monotonic() + SUPERVISOR_START_S
    while True:
        # Asked before its state: one that ended may have written it in between.
        waiting = node.alive(supervisor) and time.monotonic() <= deadline
        if supervisor_state(node, workdir, boot_id):
            return running
        if not waiting:
            said = (node.read_text(supervisor_log) or "").strip()
            raise LaunchError(
                f"the server's supervisor did not start it: {said[-300:] or 'it said nothing'}",
                f"{node.name}:{supervisor_log}",
                "see that the node has room for files and allows new processes",
            )
        time.sleep(0.01)


def stop(node: Node, workdir: str, running: Running, grace_s: float) -> dict[str, Any]:
    """Stop a server and wait until it and its supervisor are gone; return the final state.

    Raises:
        LaunchError: it is still there after its grace period and a kill.
    """
    in_container = "container" in supervisor_state(node, workdir, running.boot_id)
    note_segments(node, workdir, running)
    gone = node.stop(running.supervisor, grace_s + (CONTAINER_END_S if in_container else END_S))
    state = supervisor_state(node, workdir, running.boot_id)
    process = server_process(state)
    # The processes of a container may be another user's: they are ended by its id, in the sweep.
    if not in_container and process is not None and node.alive(process):
        gone = node.stop(process, grace_s) and gone
    if not gone:
        raise LaunchError(
            f"the server of variant {running.variant} does not end",
            f"{node.name}, pid {process.pid if process else '?'}",
            "end it by hand, then start again",
        )
    sweep(node, workdir, running.variant, running.boot_id, grace_s, state)
    shared_memory.remove(node, _segments(workdir, running))
    forget(node, workdir)
    return supervisor_state(node, workdir, running.boot_id)


def note_segments(node: Node, workdir: str, running: Running) -> None:
    """Note on the node the shared memory that a rank uses: not every engine removes its own.

    A rank that ends unasked can no longer be looked at, so this is done when it was started too.
    """
    shared_memory.note(node, _segments(workdir, running), running.boot_id)


def _segments(workdir: str, running: Running) -> str:
    return _path(workdir, f"{running.boot_id}.segments.json")


def sweep(
    node: Node, workdir: str, variant: str, boot_id: str, grace_s: float, state: dict[str, Any]
) -> None:
    """End what a killed supervisor left behind: workers in sessions of their own, containers.

    Raises:
        LaunchError: something of the start is still there.
    """
    argv = node.agent_argv("sweep", "--boot-id", boot_id, "--grace", str(grace_s))
    argv += ["--state", _path(workdir, f"{boot_id}.state.json")]
    if "container" in state:
        *before, name = state["container"]["runtime"]
        argv += ["--runtime", name, *(["--become"] if before else [])]
    elif state:
        argv.append("--bare")
    done = node.run(argv, timeout_s=2 * grace_s + CONTAINER_END_S)
    if done.code != 0:
        raise LaunchError(
            f"processes of the server of variant {variant} are left: {done.stdout.strip()}",
            node.name,
            "end them by hand, then start again",
        )
