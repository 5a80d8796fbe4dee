"""Why a load failed, in words: what the client and the server left behind."""

from collections.abc import Callable
from typing import Any

from servemap.measure.client import error_classes, last_words
from servemap.measure.patience import Patience
from servemap.measure.record import Attempt
from servemap.server import process
from servemap.server.context import Context
from servemap.server.ending import finish
from servemap.server.served import Served


def alive_check(context: Context, served: Served) -> Callable[[], bool]:
    """Return a function that says whether the served server runs; always yes if attached to."""
    if served.boot_id is None:
        return lambda: True
    node, workdir = context.head, context.head_workdir

    def check() -> bool:
        running = process.read_running(node, workdir)
        return (
            running is not None
            and running.boot_id == served.boot_id
            and process.alive(node, workdir, running)
        )

    return check


def client_reasons(attempt: Attempt, result: dict[str, Any] | None) -> list[str]:
    """Return how the client failed its load; `result` is its own record."""
    if result is None:
        said = last_words(attempt.raw)
        words = f": {said}" if said else ""
        return [f"the load client left no record{words}; see {attempt.raw / 'client.log'}"]
    reasons = list(result.get("reasons", [])) if result.get("status") != "ok" else []
    if not (result.get("counts") or {}).get("ok"):
        classes = error_classes(attempt.raw)
        named = ", ".join(f"{count} x {name}" for name, count in sorted(classes.items()))
        reasons.append(f"no request succeeded ({named or 'none was answered'})")
    return reasons


def server_reasons(
    context: Context,
    attempt: Attempt,
    served: Served,
    result: dict[str, Any] | None,
    patience: Patience,
) -> list[str]:
    """Return how the server failed the load; it is ended after an out-of-memory error.

    `result` is the client's record, its times on the head's clock.
    """
    if not patience.insist(context.head, alive_check(context, served)):
        return [] if _outlived(context, served, result) else [_bury(context, served)]
    running = process.read_running(context.head, context.head_workdir)
    if served.boot_id and running is not None and error_classes(attempt.raw).get("oom"):
        finish(context, running, "stopped", "it ran out of memory; a new one serves what follows")
    return []


def _outlived(context: Context, served: Served, result: dict[str, Any] | None) -> bool:
    """Whether the server ended only after the client was done, as after a controller's death.

    The times alone do not tell: a client that is refused by a dead server is done sooner than the
    supervisor has noted the death. A request that failed is taken as a sign of it.
    """
    counts = (result or {}).get("counts") or {}
    if served.boot_id is None or result is None or not result.get("ended_ns"):
        return False
    if not counts.get("sent") or counts.get("ok") != counts["sent"]:
        return False
    state = process.supervisor_state(context.head, context.head_workdir, served.boot_id)
    ended = state.get("ended_ns")
    return ended is not None and int(ended) > int(result["ended_ns"])


def _bury(context: Context, served: Served) -> str:
    """Record a server that died during a case, and return how it died in words."""
    node, workdir = context.head, context.head_workdir
    running = process.read_running(node, workdir)
    if running is None or running.boot_id != served.boot_id:
        return "the server that was measured was stopped or replaced during the case"
    state = process.supervisor_state(node, workdir, running.boot_id)
    reason = f"{process.say_exit(state)} during the case"
    finish(context, running, "died", reason)
    return reason
