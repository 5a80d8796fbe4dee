"""The node's clock: the one source of epoch stamps, and `clock`, which says them line by line."""

import argparse
import os
import sys
import time
from typing import List

SKEW_FILE = "SERVEMAP_CLOCK_SKEW_FILE"
"""Variable that names a file with nanoseconds to add, so that tests can step a node's clock."""


def epoch_ns() -> int:
    """Return the epoch time of this node's clock, ns."""
    path = os.environ.get(SKEW_FILE)
    if not path:
        return time.time_ns()
    try:
        with open(path, encoding="ascii") as handle:
            skew_ns = int(handle.read())
    except (OSError, ValueError):
        skew_ns = 0
    return time.time_ns() + skew_ns


def main(argv: List[str]) -> int:
    """Answer each line of stdin with the epoch ns at which it came; 0 at its end."""
    argparse.ArgumentParser(prog="clock").parse_args(argv)
    for _ in sys.stdin:
        print(epoch_ns(), flush=True)
    return 0
