"""Standard output that takes any text, whatever the terminal's encoding."""

import io
import sys


def take_any_text() -> None:
    """Have what the encoding lacks spelled (`\\xe9`, `\\ud800`): printing must not fail.

    What a server said may hold any letter, and a terminal may be set to ASCII.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined,unused-ignore]
