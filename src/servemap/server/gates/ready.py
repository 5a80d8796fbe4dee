"""Waiting for a server to be ready: as long as its log goes on, not for a fixed time."""

import codecs
import time
from collections.abc import Callable
from dataclasses import dataclass

from servemap.engines.base import Endpoints
from servemap.nodes.base import Node
from servemap.onnode.ask import shorten
from servemap.server.gates.checks import Check


@dataclass(frozen=True)
class Ready:
    """How the wait ended; `reason` says in words why the server is not ready."""

    ok: bool
    reason: str
    waited_s: float


def wait_ready(
    probe: Callable[[], Check],
    alive: Callable[[], bool],
    new_log: Callable[[], str],
    *,
    start_timeout_s: float,
    own_lines: tuple[str, ...] = (),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ready:
    """Wait until a one-token completion succeeds.

    Args:
        probe: asks for one token (see `gates.check_completion`).
        alive: whether the server's process still runs; the wait ends at once when it does not.
        new_log: returns what the log gained since the last call.
        start_timeout_s: longest time without a new line in the log.
        own_lines: texts that mark a line as the echo of our own probes: no sign of progress.
        clock: seconds, monotonic.
        sleep: waits for seconds.
    """
    began = last_progress = clock()
    last_line = ""
    pause = 0.02
    while True:
        # Alive is asked first: what the process said before it died is then still read.
        running = alive()
        lines = [line for line in new_log().splitlines() if line.strip()]
        fresh = [line for line in lines if not any(text in line for text in own_lines)]
        if fresh:
            last_progress, last_line = clock(), fresh[-1]
        said = (
            f"; last line of its log: {shorten(last_line)}" if last_line else "; its log is empty"
        )
        waited = clock() - began
        if not running:
            return Ready(False, f"the process ended after {waited:.1f} s{said}", waited)
        answer = probe()
        if answer.ok:
            return Ready(True, "", clock() - began)
        silent = clock() - last_progress
        if silent >= start_timeout_s:
            reason = f"not ready, and no new line in its log for {silent:.0f} s{said}"
            return Ready(False, f"{reason}; {answer.evidence}", clock() - began)
        sleep(pause)
        pause = min(pause * 1.5, 0.5)


def probe_marks(endpoints: Endpoints) -> tuple[str, ...]:
    """Return the path that our probe leaves in an access log."""
    return ("/" + endpoints.completions.split("/", 3)[3],)


def log_reader(node: Node, path: str) -> Callable[[], str]:
    """Return a function that gives what a log on a node gained since its last call.

    The log is one start's own, so the first call gives all of it.
    """
    offset = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> str:
        nonlocal offset
        data = node.read_since(path, offset)
        offset += len(data)
        return decoder.decode(data)

    return read
