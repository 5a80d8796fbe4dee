"""The server's processes beside which something runs that is of no use without them."""

import time
from typing import Dict, List, Optional

from .ident import is_alive, read_stat


class Watched:
    """Processes by pid, each known from now on by its start time too.

    Args:
        pids: those that run now are watched; nothing is ever gone where none does.
        gone_s: how long all of them must have ended.
    """

    def __init__(self, pids: List[int], gone_s: float) -> None:
        stats = (read_stat(pid) for pid in pids)
        self._starts: Dict[int, int] = {stat.pid: stat.start for stat in stats if stat is not None}
        self._gone_s = gone_s
        self._ended_s: Optional[float] = None

    def gone(self) -> bool:
        """Say whether all have ended, as long ago as was asked."""
        if not self._starts or any(is_alive(pid, start) for pid, start in self._starts.items()):
            self._ended_s = None
            return False
        if self._ended_s is None:
            self._ended_s = time.monotonic()
        return time.monotonic() - self._ended_s >= self._gone_s
