"""The clock of this node: every epoch stamp that the node writes is of `epoch_ns`.

`clock` answers each line of stdin with the time, for a controller that compares the clocks.
"""

import os
import sys
import time
from typing import Any, Dict, List

# Tests on one machine set the clock of a "node" apart with it; nanoseconds, as text.
SKEW_FILE = "SERVEMAP_CLOCK_SKEW_FILE"


def epoch_ns() -> int:
    """Return the time of this node, ns since 1970, plus what the file named in SKEW_FILE holds."""
    path = os.environ.get(SKEW_FILE)
    return time.time_ns() + (_skew_ns(path) if path else 0)


def answered(record: Dict[str, Any]) -> None:
    """Note in `ms` how long an answer took, and move the stamps from its question to the middle.

    What is told was true somewhere between both, so it is at most half of `ms` away.
    """
    took_ns = time.monotonic_ns() - record["mono_ns"]
    record["ms"] = took_ns / 1e6
    record["t_ns"] += took_ns // 2
    record["mono_ns"] += took_ns // 2


def _skew_ns(path: str) -> int:
    try:
        with open(path, encoding="ascii") as handle:
            return int(handle.read())
    except (OSError, ValueError):
        return 0


def main(argv: List[str]) -> int:
    """Answer each line with `epoch_ns` until the end of the input."""
    if argv:
        print("usage: clock", file=sys.stderr)
        return 2
    while sys.stdin.readline():
        print(epoch_ns(), flush=True)
    return 0
