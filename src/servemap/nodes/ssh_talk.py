"""One command on a node and its three streams."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes.base import MAX_OUTPUT_BYTES, too_much
from servemap.nodes.ssh_command import LAUNCHER, Script
from servemap.nodes.ssh_errors import Ended, last_line
from servemap.nodes.ssh_link import Link
from servemap.nodes.ssh_transport import exit_code

READ_BYTES = 4 << 20
SEND_BYTES = 1 << 18
# How long to wait for output before looking at the other streams: with and without input left.
PAUSE_S, BUSY_PAUSE_S = 0.05, 0.002
MARK_BYTES = 1 << 20


class FloodError(NodeError):
    """The command prints more than is taken; it ends when its channel is closed."""


class Slow(Exception):
    """The command did not get on in time."""


class Talk:
    """A command that runs; its reader methods begin behind the mark."""

    def __init__(self, link: Link, channel: Any, script: Script) -> None:
        self._link = link
        self._channel = channel
        self._mark = script.mark.encode()
        self._seen = b""
        self._errors: list[bytes] = []
        self._error_bytes = 0
        self.begun: str | None = None

    def send(self, data: bytes | memoryview) -> bool:
        """Send all of `data`; return whether the command still reads."""
        self._channel.settimeout(None)
        view = memoryview(data)
        while view and not self._channel.closed:
            try:
                view = view[self._channel.send(view[:SEND_BYTES]) :]
            except OSError:
                return False
        return not self._channel.closed

    def end_input(self) -> None:
        """Let the command see the end of its input."""
        if not self._channel.closed:
            self._channel.shutdown_write()

    def read(self, timeout_s: float) -> bytes:
        """Return some bytes of stdout, b"" at its end.

        Raises:
            Slow: none came in time.
            FloodError: what comes before the mark, or on stderr, has no end.
        """
        deadline = time.monotonic() + timeout_s
        while self.begun is None:
            piece = self._receive(deadline)
            self._seen += piece
            self._begin()
            if len(self._seen) > MARK_BYTES and self.begun is None:
                raise self._flood("the login shell prints without an end")
            if not piece and self.begun is None:
                return b""
        if self._seen:
            data, self._seen = self._seen, b""
            return data
        return self._receive(deadline)

    def finish(self, data: bytes, timeout_s: float) -> Ended:
        """Send `data` as all of the input and return how the command ended.

        Raises:
            Slow: it did not end in time.
            FloodError: it printed more than MAX_OUTPUT_BYTES.
            ConnectionLostError: the connection broke before it had ended.
        """
        deadline = time.monotonic() + timeout_s
        output: list[bytes] = []
        taken = 0
        pending = memoryview(data)
        ending = not pending
        if ending:
            self.end_input()
        reading = True
        while reading or pending:
            pending = self._send_some(pending)
            if not pending and not ending:
                ending = True
                self.end_input()
            if not reading:
                if time.monotonic() > deadline:
                    raise Slow
                time.sleep(BUSY_PAUSE_S)
                continue
            try:
                piece = self.read(BUSY_PAUSE_S if pending else PAUSE_S)
            except Slow:
                if time.monotonic() > deadline:
                    raise
                continue
            output.append(piece)
            taken += len(piece)
            if taken > MAX_OUTPUT_BYTES:
                raise self._flood("a command prints without an end")
            reading = bool(piece)
        return self.result(b"".join(output), deadline - time.monotonic())

    def result(self, output: bytes, timeout_s: float) -> Ended:
        """Return how the command ended, once its stdout is read to the end."""
        deadline = time.monotonic() + max(0.0, timeout_s)
        while not self._channel.exit_status_ready():
            if time.monotonic() > deadline:
                raise Slow
            self._drain()
            self._channel.status_event.wait(PAUSE_S)
        code = exit_code(self._channel)
        if code is None:
            raise self._link.lost("the command's end was never told")
        self._drain()
        if self.begun is None:
            said = (self._seen + b"\n" + b"".join(self._errors)).decode(errors="replace")
            raise NodeError(
                f"the login shell runs no commands: {last_line(said)}",
                self._link.where,
                "give that user a login shell that takes `-c COMMAND`",
            )
        errors = b"".join(self._errors)
        _, mark, behind = errors.partition(self._mark + b"\n")
        return Ended(code, output, behind if mark else errors)

    def _send_some(self, pending: memoryview) -> memoryview:
        self._channel.settimeout(0.0)
        while pending and self._channel.send_ready():
            if self._channel.closed:
                return pending[:0]
            try:
                pending = pending[self._channel.send(pending[:SEND_BYTES]) :]
            except TimeoutError:
                break
            except OSError:
                return pending[:0]
        return pending[:0] if self._channel.closed else pending

    def _receive(self, deadline: float) -> bytes:
        """Return bytes of stdout while stderr is taken as well, so that neither holds it up."""
        while True:
            self._drain()
            left = deadline - time.monotonic()
            self._channel.settimeout(max(0.0, min(PAUSE_S, left)))
            try:
                return bytes(self._channel.recv(READ_BYTES))
            except TimeoutError:
                if left <= 0:
                    raise Slow from None

    def _drain(self) -> None:
        while self._channel.recv_stderr_ready():
            piece = self._channel.recv_stderr(READ_BYTES)
            self._errors.append(piece)
            self._error_bytes += len(piece)
            if self._error_bytes > MAX_OUTPUT_BYTES:
                raise self._flood("a command prints without an end")

    def _flood(self, what: str) -> FloodError:
        error = too_much(what, self._link.where)
        return FloodError(error.what, error.where, error.remedy)

    def _begin(self) -> None:
        """Find the line of the mark in what came so far, and drop everything up to it."""
        _, mark, behind = self._seen.partition(self._mark)
        word, newline, rest = behind.partition(b"\n")
        if mark and newline:
            self.begun = word.decode(errors="replace").strip()
            self._seen = rest


@contextmanager
def talk(link: Link, script: Script, *, urgent: bool = False) -> Iterator[Talk]:
    """Start a script on the node; its channel is closed at the end.

    Raises:
        ConnectionLostError: the connection broke.
        NodeError: sshd does not run it.
    """
    line = script.line()
    with link.session(urgent=urgent) as channel:
        channel.exec_command(LAUNCHER)
        started = Talk(link, channel, script)
        started.send(line)
        yield started
