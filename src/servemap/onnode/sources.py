"""What a collector reads besides /proc: a page over HTTP, the lines of a running command."""

import http.client
import os
import shutil
import signal
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import urlsplit

from .clock import epoch_ns

# Of Debian's users, ROCm's and Iluvatar's packages.
MORE_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/corex/bin")
HTTP_TIMEOUT_S = 5.0
MAX_PAGE_BYTES = 32 << 20
MAX_LINE_BYTES = 1 << 20
COMMAND_GRACE_S = 3.0
# What a program that only replays recorded output has near its beginning (see docs/collectors.md).
SIMULATED = b"servemap: simulated"
# Without this a Prometheus client may answer in OpenMetrics and rename `vllm:x` to `vllm_x`.
HEADERS = {"Accept": "text/plain"}


class AbsentError(Exception):
    """What a collector reads is not on this node: no such program, no such file."""


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


def tool_environment() -> Dict[str, str]:
    """Return the environment of a tool: ours, with words, numbers and times as everywhere."""
    return dict(os.environ, LC_ALL="C")


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

    def sample(self) -> Dict[str, Any]:
        """Return `{"t_ns", "mono_ns", "ms", "text"}`, or `error` in place of the last two."""
        record: Dict[str, Any] = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
        try:
            text = self._fetch()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            record["error"] = "%s: %s" % (type(error).__name__, error)
        else:
            record["ms"] = (time.monotonic_ns() - record["mono_ns"]) / 1e6
            record["text"] = text
        return record

    def close(self) -> None:
        """Close the connection; the next sample opens a new one."""
        self._connection.close()

    def _fetch(self) -> str:
        reused = self._connection.sock is not None
        try:
            return self._request()
        except (ConnectionError, http.client.BadStatusLine):
            # A server may close an idle connection at any time; only a fresh one tells its state.
            if not reused:
                raise
            self.close()
            return self._request()

    def _request(self) -> str:
        self._connection.request("GET", self._path, headers=HEADERS)
        response = self._connection.getresponse()
        body = response.read(MAX_PAGE_BYTES + 1)
        if response.status != 200:
            raise http.client.HTTPException("HTTP %d" % response.status)
        if len(body) > MAX_PAGE_BYTES:
            raise http.client.HTTPException("a page of more than %d bytes" % MAX_PAGE_BYTES)
        return body.decode("utf-8", "replace")


class CommandSource:
    """Runs a command that prints until it is stopped; its stderr goes to a file."""

    def __init__(self, argv: List[str], stderr_path: str, stop: threading.Event) -> None:
        self._stderr_path = stderr_path
        self._stop = stop
        self.count = 0
        self._last = ""
        with open(stderr_path, "wb") as stderr:
            self._process = subprocess.Popen(
                argv,
                env=tool_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self._stopper = threading.Thread(target=self._stop_command, daemon=True)
        self._stopper.start()

    def lines(self) -> Iterator[Dict[str, Any]]:
        """Yield `{"t_ns", "mono_ns", "line"}` per whole line, stamped when it was received."""
        stdout = self._process.stdout
        assert stdout is not None
        for raw in iter(lambda: stdout.readline(MAX_LINE_BYTES), b""):
            self.count += 1
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self._last = line.strip() or self._last
            # The last piece of a command that was stopped: half a number looks like another one.
            if not raw.endswith(b"\n") and len(raw) < MAX_LINE_BYTES:
                continue
            yield {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns(), "line": line}
        self._process.wait()

    def ending(self) -> str:
        """Say in one line how a command ended that should have run on, and what it said last."""
        code: Optional[int] = self._process.returncode
        how = "signal %d" % -code if code is not None and code < 0 else "status %s" % code
        with open(self._stderr_path, "rb") as handle:
            said = handle.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        last = said[-1] if said else self._last
        return "ended early with %s after %d lines%s" % (
            how,
            self.count,
            ": " + last[:300] if last else "",
        )

    def _stop_command(self) -> None:
        self._stop.wait()
        if self._process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(COMMAND_GRACE_S)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
