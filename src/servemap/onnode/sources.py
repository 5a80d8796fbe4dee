"""What a collector reads besides /proc: a page over HTTP, the lines of a running command."""

import http.client
import os
import shutil
import socket
import threading
import time
from contextlib import closing, suppress
from typing import Any, Dict, Generator, List, Optional
from urllib.parse import urlsplit

from .clock import answered, epoch_ns
from .tool import Ends, Tool

# Of Debian's users, ROCm's and Iluvatar's packages.
MORE_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/corex/bin")
HTTP_TIMEOUT_S = 5.0
MAX_PAGE_BYTES = 8 << 20
MAX_LINE_BYTES = 1 << 20
# A page of 100 kB ten times a second is 1 MB/s; what floods prints a hundred times that.
BURST_BYTES = 16 << 20
BYTES_PER_S = 4 << 20
# What a program that only replays recorded output has near its beginning (see docs/collectors.md).
SIMULATED = b"servemap: simulated"
# Without this a Prometheus client may answer in OpenMetrics and rename `vllm:x` to `vllm_x`.
HEADERS = {"Accept": "text/plain"}


class AbsentError(Exception):
    """What a collector reads is not on this node: no such program, no such file."""


class TooMuchError(Exception):
    """A collector writes more than can be kept and read."""


def program_path(name: str) -> Optional[str]:
    """Return the path of a program on this node, None where there is none.

    PATH is searched first, then where tools lie that a user's PATH may lack.
    """
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(MORE_FOLDERS))


def find_program(name: str) -> str:
    """Return the path of a program on this node; AbsentError where there is none."""
    path = program_path(name)
    if path is None:
        raise AbsentError("no program %s on this node's PATH" % name)
    return path


def is_simulated(program: str) -> bool:
    """Return whether a program says of itself that it replays what was recorded elsewhere."""
    try:
        with open(program, "rb") as handle:
            return SIMULATED in handle.read(4096)
    except OSError:
        return False


class HttpSource:
    """Fetches one page again and again over a connection that is kept open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("not an http URL: %s" % url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=HTTP_TIMEOUT_S)
        self._path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        self._socket: Optional[socket.socket] = None
        self._late = False

    def sample(self) -> Dict[str, Any]:
        """Return `{"t_ns", "mono_ns", "ms", "text"}`, or `error` in place of the last two.

        The time is the middle of question and answer (see `answered`).
        """
        record: Dict[str, Any] = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
        self._late = False
        # The connection's own limit is for each piece, however many of them come.
        limit = threading.Timer(HTTP_TIMEOUT_S, self._hang_up)
        limit.daemon = True
        limit.start()
        try:
            text = self._fetch()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            said = "%s: %s" % (type(error).__name__, error)
            record["error"] = "no whole page in %g s" % HTTP_TIMEOUT_S if self._late else said
        else:
            answered(record)
            record["text"] = text
        finally:
            limit.cancel()
        return record

    def close(self) -> None:
        """Close the connection; the next sample opens a new one."""
        self._connection.close()

    def _hang_up(self) -> None:
        self._late = True
        if self._socket is not None:
            with suppress(OSError):
                # An SSL socket's own method also drops state that the other thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _fetch(self) -> str:
        reused = self._connection.sock is not None
        try:
            return self._request()
        except (ConnectionError, http.client.BadStatusLine):
            # A server may close an idle connection at any time; only a fresh one tells its state.
            if not reused or self._late:
                raise
            self.close()
            return self._request()

    def _request(self) -> str:
        if self._connection.sock is None:
            self._connection.connect()
            # The connection lets go of the socket of a page that ends with it.
            self._socket = self._connection.sock
        if self._late:
            raise http.client.HTTPException("no connection in time")
        self._connection.request("GET", self._path, headers=HEADERS)
        response = self._connection.getresponse()
        untold = response.length is None and not response.chunked
        body = response.read(MAX_PAGE_BYTES + 1)
        if response.status != 200:
            raise http.client.HTTPException("HTTP %d" % response.status)
        if len(body) > MAX_PAGE_BYTES:
            raise http.client.HTTPException("a page of more than %d bytes" % MAX_PAGE_BYTES)
        # read() of a limited size takes the end of the connection for that of the page.
        if response.length or self._late or (untold and not body.endswith(b"\n")):
            raise http.client.HTTPException("the page ends before its end")
        return body.decode("utf-8", "replace")


class Budget:
    """How many bytes a collector may write: some at once, and more with time."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._spent = 0

    def spend(self, size: int) -> None:
        """Count bytes; TooMuchError when they are more than it may write by now."""
        self._spent += size
        passed_s = time.monotonic() - self._began_s
        if self._spent > BURST_BYTES + BYTES_PER_S * passed_s:
            raise TooMuchError(
                "it was stopped after %.0f MB in %.1f s: more than a collector may write"
                % (self._spent / 1e6, passed_s)
            )


class CommandSource:
    """Follows a command that prints until it is stopped; the ends of its stderr go to a file."""

    def __init__(self, argv: List[str], stderr_path: str, stop: threading.Event) -> None:
        self.count = 0
        self._last = ""
        self._budget = Budget()
        handle = open(stderr_path, "wb")  # noqa: SIM115 - until the command's end
        self._err = Ends(handle, self._budget.spend)
        try:
            self._tool = Tool(argv, self._err, stop)
        except OSError:
            self._err.close()
            raise

    def lines(self) -> Generator[Dict[str, Any], None, None]:
        """Yield `{"t_ns", "mono_ns", "line"}` per whole line, stamped when it was received.

        What is longer than MAX_LINE_BYTES is no line. TooMuchError where it prints too much.
        """
        rest, skip = b"", False
        with closing(self._err), closing(self._tool.blocks()) as blocks:
            for block in blocks:
                self._budget.spend(len(block))
                stamp = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
                *ended, rest = (rest + block).split(b"\n")
                for number, raw in enumerate(ended):
                    line = self._said(raw)
                    if not (skip and number == 0):
                        yield dict(stamp, line=line)
                skip = skip and not ended
                if len(rest) > MAX_LINE_BYTES:
                    rest, skip = b"", True
        # The last piece of a command that was stopped: half a number looks like another one.
        if rest:
            self._said(rest)

    def ending(self) -> str:
        """Say in one line how a command ended that should have run on, and what it said last."""
        code = self._tool.code()
        how = "signal %d" % -code if code is not None and code < 0 else "status %s" % code
        said = self._err.text()[-2000:].strip().splitlines()
        last = said[-1] if said else self._last
        return "ended early with %s after %d lines%s" % (
            how,
            self.count,
            ": " + last[:300] if last else "",
        )

    def _said(self, raw: bytes) -> str:
        """Note and return a line."""
        self.count += 1
        line = raw.decode("utf-8", "replace").rstrip("\r")
        self._last = line.strip() or self._last
        return line
