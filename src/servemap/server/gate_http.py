"""Short HTTP questions to a server: no proxies, no redirects, bounded, never an exception."""

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

MAX_BYTES = 8 * 1024 * 1024
"""Longest answer that is read; a longer one is cut."""


@dataclass(frozen=True)
class Reply:
    """An answer, or why there is none.

    `status` is None where no HTTP answer came; `error` is None for an answer with status 2xx.
    """

    url: str
    status: int | None
    text: str
    error: str | None

    @property
    def json(self) -> Any | None:
        """The parsed body; None where it is no JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def evidence(self) -> str:
        """What was asked and what came back, in one short line."""
        if self.error is None:
            return f"{self.url} answered {self.status}: {shorten(self.text) or '(nothing)'}"
        return f"{self.url}: {self.error}"


def shorten(text: str, limit: int = 200) -> str:
    """Return a text on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def fetch(url: str, timeout_s: float, body: dict[str, Any] | None = None) -> Reply:
    """Return the answer to a GET, or to a POST of `body` as JSON, within about `timeout_s`.

    The limit is for the whole exchange, however slowly the bytes come. Redirects are not
    followed: what another address answers says nothing about this server.
    """
    if not url.startswith(("http://", "https://")):
        return Reply(url, None, "", "not an http:// or https:// address")
    try:
        connection, target = _connection(url, timeout_s)
    except (http.client.HTTPException, ValueError) as error:
        return Reply(url, None, "", _reason(error, timeout_s))
    replies: list[Reply] = []
    opened: list[socket.socket] = []

    def ask() -> None:
        try:
            connection.connect()
            opened.append(connection.sock)
            replies.append(_exchange(url, connection, target, body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            replies.append(Reply(url, None, "", _reason(error, timeout_s)))
        finally:
            connection.close()

    thread = threading.Thread(target=ask, name="gate", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not replies:
        _hang_up(opened)
        return Reply(url, None, "", f"no answer within {timeout_s:g} s")
    return replies[0]


def _connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the address names no host")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return kind(parts.hostname, parts.port, timeout=timeout_s), target


def _exchange(
    url: str, connection: http.client.HTTPConnection, target: str, body: dict[str, Any] | None
) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "Connection": "close",
    }
    connection.request("GET" if data is None else "POST", target, data, headers)
    response = connection.getresponse()
    if 200 <= response.status < 300:
        return Reply(url, response.status, _read(response), None)
    return _refused(url, response)


def _hang_up(opened: list[socket.socket]) -> None:
    """End an exchange that another thread waits in; the connection may have let its socket go."""
    for waiting in opened:
        with contextlib.suppress(OSError):
            # An SSL socket's own method also drops state that the other thread uses.
            socket.socket.shutdown(waiting, socket.SHUT_RDWR)


def _read(response: http.client.HTTPResponse) -> str:
    parts: list[bytes] = []
    size = 0
    while size < MAX_BYTES:
        part = response.read1(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:MAX_BYTES].decode("utf-8", "replace")


def _refused(url: str, response: http.client.HTTPResponse) -> Reply:
    location = response.getheader("Location")
    if 300 <= response.status < 400 and location:
        said = f": a redirect to {shorten(location)}, which is not followed"
        return Reply(url, response.status, "", f"HTTP status {response.status}{said}")
    try:
        text = _read(response)
    except (OSError, http.client.HTTPException):
        text = ""
    said = f": {shorten(text)}" if text.strip() else ""
    return Reply(url, response.status, text, f"HTTP status {response.status}{said}")


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {shorten(str(error))}"
