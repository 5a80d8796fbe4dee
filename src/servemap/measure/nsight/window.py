"""The aligned window: all ranks begin and end collecting at one time of the head's clock."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from servemap.engines.nsys import Graphs
from servemap.measure.clocks import Measured
from servemap.measure.nsight.installed import NsysError
from servemap.measure.nsight.session import RankSession, start, stop
from servemap.nodes.parallel import each
from servemap.parsers.values import integer

SECONDS = 2.0
"""How long is collected where no capture says it."""

GRAPHS: Graphs = "node"
"""How CUDA graphs are traced where no capture says it."""

LEAD_S = 2.0
"""From the decision to the start: the farthest node must have heard of it by then."""


def take_window(
    sessions: Mapping[str, RankSession], clocks: Mapping[str, Measured], seconds: float
) -> None:
    """Collect on all nodes from one moment to another.

    Where one does not start, the others are stopped again by the caller.

    Args:
        sessions: by node.
        clocks: each node's clock against ours.
        seconds: how long.

    Raises:
        NsysError: the first session that failed; each keeps its own problem.
    """
    at_ns = time.time_ns() + int(LEAD_S * 1e9)
    _all(sessions, lambda name, one: start(one, at_ns + clocks[name]["offset_ns"]))
    until_ns = at_ns + int(seconds * 1e9)
    _all(sessions, lambda name, one: stop(one, until_ns + clocks[name]["offset_ns"]))


def each_session(
    sessions: Mapping[str, RankSession], step: Callable[[RankSession], None]
) -> list[NsysError]:
    """Take a step of all sessions at once; return the errors, each noted at its session too."""
    return _tried(sessions, lambda _name, one: step(one))


def _all(sessions: Mapping[str, RankSession], step: Callable[[str, RankSession], None]) -> None:
    for error in _tried(sessions, step):
        raise error


def _tried(
    sessions: Mapping[str, RankSession], step: Callable[[str, RankSession], None]
) -> list[NsysError]:
    def one(name: str) -> NsysError | None:
        try:
            step(name, sessions[name])
        except NsysError as error:
            sessions[name].problem = {"state": error.state, "what": error.what}
            return error
        return None

    return [error for error in each(list(sessions), one).values() if error is not None]


def window_record(
    sessions: Mapping[str, RankSession], clocks: Mapping[str, Measured], head: str
) -> dict[str, Any]:
    """Return when the nodes collected, on the head's clock, and how far apart they began.

    `start_ns`: the last node's start was answered; `end_ns`: the first node was told to stop, so
    between them all collected; null where one did not. `start_spread_ns`: between the first and the
    last node at which the command was begun, which is known to `error_ns`, the worst clock.
    """
    zero = clocks[head]["offset_ns"]

    def moments(state: str, key: str) -> list[int] | None:
        found = []
        for name, one in sessions.items():
            t_ns = integer(one.said.get(state, {}).get(key))
            if t_ns is None or state not in one.reached:
                return None
            found.append(t_ns - clocks[name]["offset_ns"] + zero)
        return found

    began, started = moments("started", "began_ns"), moments("started", "ended_ns")
    ended = moments("stopped", "began_ns")
    errors = [
        0 if name == head else clocks[name]["error_ns"] + clocks[head]["error_ns"]
        for name in sessions
    ]
    return {
        "start_ns": max(started) if started else None,
        "end_ns": min(ended) if ended else None,
        "start_spread_ns": max(began) - min(began) if began else None,
        "error_ns": max(errors),
        "source": "nsys",
    }


def nothing_common(window: Mapping[str, Any]) -> str | None:
    """Return in words that a window is empty; None where it is not, or not known."""
    start_ns, end_ns = window["start_ns"], window["end_ns"]
    if start_ns is None or end_ns is None or start_ns < end_ns:
        return None
    return "the first node had ended when the last one began to collect: ask for more `seconds`"
