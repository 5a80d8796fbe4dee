"""How late the client was: what it can say of its own error without knowing the server's times."""

from typing import Optional

STEP_NS = 50_000
STEPS = 4000
"""Lateness is counted in steps of 50 us up to 0.2 s; more counts as that much."""
ASLEEP_NS = 100_000


class Lateness:
    """Counts of reads by the most that they can have been late, ns.

    What a round reads arrived after the last poll that told of all that was ready, or, where this
    poll slept, when it woke. From then to the round's last read is the most that any was late.
    """

    __slots__ = ("counts", "worst_ns")

    def __init__(self) -> None:
        self.counts = [0] * (STEPS + 1)
        self.worst_ns = 0

    def add(self, late_ns: int, reads: int) -> None:
        """Count the reads of one round."""
        self.counts[min(late_ns // STEP_NS, STEPS)] += reads
        if late_ns > self.worst_ns:
            self.worst_ns = late_ns

    def merge(self, other: "Lateness") -> None:
        """Count another window's reads too."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts)]
        self.worst_ns = max(self.worst_ns, other.worst_ns)

    def percentile_ms(self, share: float) -> Optional[float]:
        """Return what `share` of the reads were at most late; None where nothing was read."""
        due, seen = share * sum(self.counts), 0
        for step, count in enumerate(self.counts):
            seen += count
            if count and seen >= due:
                return min((step + 1) * STEP_NS, self.worst_ns) / 1e6
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
