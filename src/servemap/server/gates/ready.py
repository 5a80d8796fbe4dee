"""Waiting for a server to be ready: as long as its log goes on, not for a fixed time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from servemap.engines.base import Endpoints
from servemap.model.server_spec import ModelSpec
from servemap.nodes.base import Node
from servemap.onnode.ask import shorten
from servemap.server.gates.ask import Question, ask
from servemap.server.gates.checks import Check, check_completion


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
    idle: Callable[[str], bool] = lambda _line: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ready:
    """Wait until a probe succeeds.

    Args:
        probe: asks whether the server is ready (see `check_ready`).
        alive: whether the server's process still runs; the wait ends at once when it does not.
        new_log: returns what the log gained since the last call.
        start_timeout_s: longest time without a new line in the log.
        own_lines: texts that mark a line as the echo of our own probes: no sign of progress.
        idle: whether a line is one that the engine repeats while it waits: no sign of it either.
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
        said_more = [line for line in lines if not any(text in line for text in own_lines)]
        if said_more:
            last_line = said_more[-1]
        if not all(map(idle, said_more)):
            last_progress = clock()
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


def check_ready(node: Node, endpoints: Endpoints, model: ModelSpec, timeout_s: float) -> Check:
    """Check that the server produces a token, and then that it calls itself healthy.

    Neither is enough alone. Health may be said while completions hang. SGLang answers completions
    while its own warm-up still runs, which would run beside what is measured, and may yet end the
    server; its `/health` is 503 until the warm-up is over.
    """
    completion = check_completion(node, endpoints, model, timeout_s)
    if not completion.ok:
        return completion
    (reply,) = ask(node, Question(endpoints.health, timeout_s))
    return Check("health", reply.error is None, reply.evidence)


def probe_marks(endpoints: Endpoints) -> tuple[str, ...]:
    """Return the paths that our probes leave in an access log."""
    return tuple("/" + url.split("/", 3)[3] for url in (endpoints.completions, endpoints.health))
