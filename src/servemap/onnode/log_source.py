"""The lines that a server writes to its log from now on."""

import os
import threading
import time
from typing import Any, BinaryIO, Dict, Iterator, List

from .clock import epoch_ns
from .sources import AbsentError

LOOK_S = 0.2
BLOCK = 1 << 20
# A longer line is none of those that are kept.
MAX_LINE_BYTES = 1 << 16


class LogSource:
    """Follows a file that grows; one that was replaced or cut is read from its start."""

    def __init__(self, path: str, keep: List[str], stop: threading.Event) -> None:
        """Args:
        path: the file; AbsentError where it is not there.
        keep: a line is kept that has one of these words in it.
        stop: when to end.
        """
        self._path = path
        self._keep = [word.encode() for word in keep]
        self._stop = stop
        try:
            self._handle = self._open()
        except OSError as error:
            raise AbsentError("no log %s: %s" % (path, error.strerror or error)) from None
        self._rest = b""
        # What is being written as we come is not a whole line.
        self._skip = False
        if self._handle.seek(0, os.SEEK_END):
            self._handle.seek(-1, os.SEEK_END)
            self._skip = self._handle.read(1) != b"\n"

    def lines(self) -> Iterator[Dict[str, Any]]:
        """Yield `{"t_ns", "mono_ns", "line"}` per kept line, stamped when it was found."""
        try:
            stopping = False
            while not stopping:
                stopping = self._stop.is_set()
                while True:
                    block = self._handle.read(BLOCK)
                    for line in self._whole(block):
                        if any(word in line for word in self._keep):
                            said = line.decode("utf-8", "replace").rstrip("\r")
                            yield {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns(), "line": said}
                    if not block:
                        break
                if not stopping:
                    self._renew()
                    self._stop.wait(LOOK_S)
        finally:
            self._handle.close()

    def _open(self) -> BinaryIO:
        return open(self._path, "rb")

    def _whole(self, block: bytes) -> List[bytes]:
        """Return the lines that this block ends; the last piece waits for its end."""
        *ended, rest = (self._rest + block).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            rest, self._skip = b"", True
        self._rest = rest
        if self._skip and ended:
            ended, self._skip = ended[1:], False
        return ended

    def _renew(self) -> None:
        """Take up a file that took this one's place, or was cut."""
        try:
            now = os.stat(self._path)
        except OSError:
            return
        here = os.fstat(self._handle.fileno())
        if (now.st_dev, now.st_ino) != (here.st_dev, here.st_ino):
            try:
                fresh = self._open()
            except OSError:
                return
            self._handle.close()
            self._handle = fresh
        elif here.st_size < self._handle.tell():
            self._handle.seek(0)
        else:
            return
        self._rest, self._skip = b"", False
