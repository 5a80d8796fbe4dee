"""How late the client read: what it can say of its own error without knowing the server's times.

The kernel stamps what arrives (socket(7), SO_TIMESTAMPNS; for TCP the stamp of the last segment
that was read), so what passed until the read is known, waiting for a core included. A gap between
two tokens is wrong by at most the more late of its two reads: where 1 in 200 reads is later than
x, at most 1 in 100 gaps is wrong by more than x.
"""

import socket
import struct
import time
from operator import add
from typing import Dict, List, Optional, Tuple

SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("ll")
ROOM = socket.CMSG_SPACE(_STAMP.size)
STEP_NS = 20_000
STEPS = 10_000
"""Lateness is counted in steps of 20 us up to 0.2 s; more counts as that much."""
SHARES = {"p50": 0.5, "p99": 0.99, "p995": 0.995}


def ask_for_stamps(sock: socket.socket) -> None:
    """Have arrivals at `sock` stamped; where that cannot be, nothing is known of its reads."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return


class Lateness:
    """Counts of reads by how late they were."""

    __slots__ = ("counts", "worst_ns")

    def __init__(self) -> None:
        self.counts = [0] * (STEPS + 1)
        self.worst_ns = 0

    def add(self, late_ns: int, reads: int) -> None:
        """Count reads that were at most so late."""
        self.counts[min(late_ns // STEP_NS, STEPS)] += reads
        if late_ns > self.worst_ns:
            self.worst_ns = late_ns

    def merge(self, other: "Lateness") -> None:
        """Count another window's reads too."""
        self.counts = list(map(add, self.counts, other.counts))
        self.worst_ns = max(self.worst_ns, other.worst_ns)

    def figures(self) -> Optional[Dict[str, float]]:
        """Return the most that shares of the reads were late, ms; None where nothing is known."""
        whole = sum(self.counts)
        if not whole:
            return None
        found = {name: self._within_ms(share * whole) for name, share in SHARES.items()}
        return {**found, "max": round(self.worst_ns / 1e6, 3)}

    def _within_ms(self, due: float) -> float:
        seen, step = 0, -1
        while seen < due:
            step += 1
            seen += self.counts[step]
        return round(min((step + 1) * STEP_NS, self.worst_ns) / 1e6, 3)


def late_ns(ancillary: List[Tuple[int, int, bytes]]) -> Optional[int]:
    """Return how long ago what was just read arrived, ns; None where it was not stamped."""
    now = time.time_ns()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) == _STAMP.size:
            stamp: Tuple[int, int] = _STAMP.unpack(data)
            # Both are of the wall clock, which may be set between them.
            return max(now - stamp[0] * 10**9 - stamp[1], 0)
    return None


def waited_s() -> Optional[float]:
    """Return how long this process was ready to run and had no core, s.

    None where the kernel does not count it (its Documentation/scheduler/sched-stats.rst).
    """
    try:
        with open("/proc/self/schedstat", encoding="ascii") as handle:
            return int(handle.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
