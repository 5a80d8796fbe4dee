"""How a rank's server ended, in words."""

import time
from typing import Any

from servemap.nodes.base import Node
from servemap.server.launch.process import END_S, Running, state_path, supervisor_state

BOOT_ID = "/proc/sys/kernel/random/boot_id"
RESTARTED = "the machine was restarted, and the server ended with it"
KILLED = "the server was ended by signal"

LOST = {
    "client_lost": "the container was stopped because its client was lost",
    "supervisor_lost": "the container was stopped because its supervisor was killed",
}


def say_exit(state: dict[str, Any]) -> str:
    """Return in words how a server ended."""
    end = state.get("exit") or {}
    if end.get("reason") == "lease_expired":
        return "the server was stopped because nobody renewed its lease"
    if end.get("reason") in LOST:
        return LOST[end["reason"]]
    if end.get("oom_killed"):
        return "the server was killed because its container was out of memory"
    if end.get("signal") is not None:
        return f"{KILLED} {end['signal']}"
    if end.get("code") is not None:
        return f"the server exited with code {end['code']}"
    return "the server's process is gone"


def why_ended(node: Node, workdir: str, running: Running, grace_s: float) -> str:
    """Return in words how a rank that does not run any more ended.

    Its supervisor says so once it has ended the rest, for which it may take the grace and a kill.
    """
    deadline = time.monotonic() + grace_s + END_S
    state = supervisor_state(node, workdir, running.boot_id)
    while state and not state.get("exit") and node.alive(running.supervisor):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
        state = supervisor_state(node, workdir, running.boot_id)
    path = state_path(workdir, running.boot_id)
    if not state and node.read_text(path) is not None:
        return f"the record of the server is damaged: {path}"
    if not state.get("exit") and _restarted(node, state):
        return RESTARTED
    return say_exit(state)


def _restarted(node: Node, state: dict[str, Any]) -> bool:
    """Whether the machine is in another boot than the one in which a state was written."""
    then, now = state.get("machine_boot_id"), node.read_text(BOOT_ID)
    return bool(then and now) and then != str(now).strip()
