"""A lease: a heartbeat file that its holder touches; who is not renewed in time must end."""

import os
import time
from typing import Optional


class Lease:
    """Watches the mtime of a heartbeat file.

    The age of a heartbeat is judged by the wall clock once, when it is first seen, and by the
    monotonic clock from then on, so that a clock step ends no lease. A file that is not there is
    as old as this object.
    """

    def __init__(self, path: str, ttl_s: float) -> None:
        self._path = path
        self._ttl_s = ttl_s
        self._seen_ns: Optional[int] = None
        self._renewed_s = time.monotonic()

    def expired(self) -> bool:
        """Say whether nobody has renewed the lease for ttl_s."""
        try:
            mtime_ns = os.stat(self._path).st_mtime_ns
        except OSError:
            mtime_ns = self._seen_ns if self._seen_ns is not None else -1
        now_s = time.monotonic()
        if mtime_ns != self._seen_ns and mtime_ns >= 0:
            self._seen_ns = mtime_ns
            self._renewed_s = now_s - max(0.0, (time.time_ns() - mtime_ns) / 1e9)
        return now_s - self._renewed_s > self._ttl_s

    def tick_s(self) -> float:
        """Return how often to look, in seconds."""
        return min(1.0, self._ttl_s / 4)
