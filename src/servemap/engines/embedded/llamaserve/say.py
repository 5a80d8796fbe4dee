"""The log of the server: one line each, on stderr."""

import sys


class StartError(Exception):
    """The server cannot start; the message is the last line of the log."""


def log(text: str) -> None:
    """Write one line of the log."""
    sys.stderr.write(f"llamaserve: {text}\n")
    sys.stderr.flush()
