"""A server in a container under its supervisor: its main process found, its end made sure of."""

import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from .container import (
    SETTLE_S,
    Look,
    RuntimeFailedError,
    append_log,
    end_all,
    exit_of,
    find,
    look_at,
    remove,
    runs,
    settled,
    stop,
)
from .container_guard import Guard
from .ident import read_stat


def check_container(spec: Dict[str, Any]) -> None:
    """Check the `container` of a supervisor's spec, if any. ValueError says what is wrong."""
    container = spec.get("container", {"runtime": ["docker"], "name": ""})
    runtime = container.get("runtime") if isinstance(container, dict) else None
    words = runtime if isinstance(runtime, list) else []
    if not words or not all(isinstance(one, str) for one in [*words, container.get("name")]):
        raise ValueError("the container of the spec lacks a valid 'runtime' or 'name'")


class ContainerServer:
    """The container of one start, from before its client is started until it is removed.

    Args:
        spec: the supervisor's spec, with `container: {"runtime": [...], "name"}`.
        changed: called with the container's part of the state and the server's when they are known.
    """

    def __init__(
        self, spec: Dict[str, Any], changed: Callable[[Dict[str, Any], Dict[str, Any]], None]
    ) -> None:
        self._spec = spec
        self._runtime: List[str] = spec["container"]["runtime"]
        self._name: str = spec["container"]["name"]
        self._changed = changed
        self._client: Dict[str, Any] = {}
        self._found: Optional[Look] = None
        self._pause_s = 0.1
        self._next_s = 0.0
        self._gone_s: Optional[float] = None
        self._guard = self._new_guard()

    def record(self) -> Dict[str, Any]:
        """Return the container's part of the state file."""
        return {
            "runtime": self._runtime,
            "name": self._name,
            "id": self._found.id if self._found else None,
            "pid": self._found.pid if self._found else None,
            "client": self._client,
        }

    def started(self, client: Dict[str, Any]) -> None:
        """Take note of the client, `{"pid", "start"}`."""
        self._client = {"pid": client["pid"], "start": client["start"]}

    def tick(self) -> Optional[float]:
        """Look after the container; return in how many seconds to do so again, None if it ended."""
        if not self._guard.alive():
            self._guard.release()
            self._guard = self._new_guard()
        now_s = time.monotonic()
        if self._found is None:
            if now_s >= self._next_s:
                self._look()
                self._next_s = time.monotonic() + self._pause_s
                self._pause_s = min(1.0, self._pause_s * 2)
            return self._pause_s
        if runs(self._found):
            return 1.0
        # Its client ends soon after it; one that does not must not hide that the server is gone.
        self._gone_s = self._gone_s or now_s
        return None if now_s - self._gone_s > SETTLE_S else 0.5

    def end(self, client_ended: bool, log: str) -> Dict[str, Any]:
        """Stop the container, keep what its lost client did not log, remove it.

        Returns:
            its part of the `exit` object; `reason` only where it is another than the supervisor's.
        """
        found: Dict[str, Any] = {}
        try:
            for container_id in find(self._runtime, self._spec["boot_id"]):
                before = settled(self._runtime, container_id)
                look = stop(self._runtime, container_id, self._spec["grace_s"])
                if client_ended and before is not None and before.running:
                    found["reason"] = "client_lost"
                    since_s = int(os.stat(log).st_mtime) - 1
                    append_log(self._runtime, container_id, log, since_s)
                self._found = self._found or look
                if look is not None and look.code is not None:
                    found.update(exit_of(look), oom_killed=look.oom_killed)
                remove(self._runtime, container_id)
        except RuntimeFailedError as error:
            print("supervise: %s" % error, file=sys.stderr)
        return found

    def left(self) -> List[Dict[str, Any]]:
        """End what a client that was just starting still made; return what cannot be ended."""
        try:
            end_all(self._runtime, self._spec["boot_id"], 0)
            left = find(self._runtime, self._spec["boot_id"])
        except RuntimeFailedError as error:
            return [{"name": self._name, "error": str(error)}]
        return [{"id": one} for one in left]

    def release(self) -> None:
        """Let the guard go; call it when everything is gone, and before the state says so."""
        self._guard.release()

    def _look(self) -> None:
        try:
            look = look_at(self._runtime, self._name)
        except RuntimeFailedError:
            return
        # A process that this node does not show (a daemon elsewhere) cannot stand for the server.
        if look is not None and look.pid is not None and look.start is not None:
            self._found = look
            stat = read_stat(look.pid)
            group = stat.pgrp if stat else look.pid
            server = {"pid": look.pid, "start": look.start, "pgid": group}
            self._changed(self.record(), server)

    def _new_guard(self) -> Guard:
        spec = self._spec
        return Guard(self._runtime, spec["boot_id"], spec["grace_s"], spec["state"])
