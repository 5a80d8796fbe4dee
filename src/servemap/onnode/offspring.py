"""The processes that a supervisor's server started, noted while they still have a known parent.

One that left session, group and environment (two forks, setsid, an empty environment) can be told
from a stranger only by the supervisor above it, so what the supervisor saw must outlive it.
"""

import time
from typing import Any, Callable, Dict, List

from .ident import all_stats, descendants

LOOK_S = 2.0
SHARE = 200
"""A look takes at most one part in so many of one core's time."""
MOST = 256
Identity = Dict[str, int]


class Offspring:
    """Looks for descendants of a process from time to time.

    Args:
        root: the process, itself left out.
        note: called with their identities, those outside of `root`'s session first and at most
            MOST, whenever they are others than before.
    """

    def __init__(self, root: int, session: int, note: Callable[[List[Identity]], Any]) -> None:
        self._root = root
        self._session = session
        self._note = note
        self._known: List[Identity] = []
        self._due_s = 0.0

    def tick(self) -> float:
        """Look where that is due; return in how many seconds it is due again."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            found = descendants(self._root, all_stats())
            found = sorted(found, key=lambda stat: (stat.session == self._session, stat.start))
            seen = [{"pid": stat.pid, "start": stat.start} for stat in found[:MOST]]
            if seen != self._known:
                self._known = seen
                self._note(seen)
            took_s = time.monotonic() - now_s
            self._due_s = now_s + max(LOOK_S, SHARE * took_s)
        return self._due_s - now_s
