"""What a program prints, line by line, each with the time at which it came."""

import json
import os
import re
import select
import time
from typing import Any, Dict, Optional

LONGEST = 2000
"""Letters of a line that are kept."""
MOST_BYTES = 4 * 2**20
"""What is kept of all lines; those beyond are only counted."""
PIECE = 65536
_ENDS = re.compile(rb"[\r\n]+")
_ERROR = re.compile(r"(?:Error|ERROR|Exception)\b")
FRAMES = " \t─━│┃╭╮╰╯┏┓┗┛"
"""What some programs draw around their last words."""
LONGEST_WORDS = 300


class Lines:
    """Reads a pipe into DIR/lines.jsonl and notes the first line that matches each pattern.

    `marks` has, for each pattern that was met, the line's times. A carriage return ends a line too,
    as progress bars use it.
    """

    def __init__(self, out: str, epoch_ns: int, patterns: Dict[str, str]) -> None:
        self.marks: Dict[str, Dict[str, Any]] = {}
        self._first_error = ""
        self._last = ""
        self._epoch_ns = epoch_ns
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        # Unbuffered: what was said before we are killed is evidence.
        path = os.path.join(out, "lines.jsonl")
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self._problem: Optional[str] = None
        self._pipe = -1
        self._left = b""
        self._size = 0
        self._full = False
        self._seen = self._kept = 0

    def begin(self, pipe: int) -> None:
        """Read from this file descriptor from now on."""
        self._pipe = pipe

    def read(self, wait_s: float) -> bool:
        """Take what comes within `wait_s` seconds; False at the end of the output."""
        if not select.select([self._pipe], [], [], wait_s)[0]:
            return True
        piece = os.read(self._pipe, PIECE)
        mono_ns = time.monotonic_ns()
        *whole, self._left = _ENDS.split(self._left + piece)
        # What has no end is not kept for ever: only its beginning can matter.
        self._left = self._left[: 4 * LONGEST]
        if not piece:
            whole.append(self._left)
            self._left = b""
        for line in whole:
            self._take(line.decode("utf-8", "replace"), mono_ns)
        return bool(piece)

    def rest(self, limit_s: float) -> None:
        """Take what is left in the pipe, without waiting for more, for at most so many seconds."""
        until = time.monotonic() + limit_s
        while select.select([self._pipe], [], [], 0)[0] and time.monotonic() < until:
            if not self.read(0):
                return

    def counts(self) -> Dict[str, int]:
        """Return how many lines came and how many were kept."""
        return {"seen": self._seen, "kept": self._kept}

    def words(self) -> str:
        """Return what tells best why a program failed: its last line, and the first error before.

        A traceback ends with its error; of several processes the first one names the cause.
        """
        if self._first_error in ("", self._last):
            return self._last
        return "%s (first: %s)" % (self._last, self._first_error) if self._last else ""

    def close(self) -> Optional[str]:
        """Close the file; return what went wrong in writing it."""
        try:
            self._file.close()
        except OSError as error:
            self._problem = self._problem or str(error)
        return self._problem

    def _take(self, line: str, mono_ns: int) -> None:
        if not line.strip():
            return
        text = line[:LONGEST]
        stamp: Dict[str, Any] = {"t_ns": mono_ns + self._epoch_ns, "mono_ns": mono_ns}
        for name, pattern in self._patterns.items():
            if name not in self.marks and pattern.search(text):
                self.marks[name] = dict(stamp, text=text)
        self._seen += 1
        said = text.strip(FRAMES)[:LONGEST_WORDS]
        self._last = said or self._last
        if not self._first_error and _ERROR.search(said):
            self._first_error = said
        if self._full or self._problem is not None:
            return
        data = json.dumps(dict(stamp, text=text), separators=(",", ":")).encode("utf-8") + b"\n"
        self._size += len(data)
        if self._size > MOST_BYTES:
            self._full = True
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._problem = str(error)
            return
        self._kept += 1
