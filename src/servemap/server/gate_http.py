"""Short HTTP questions to a server: no proxies, bounded in time and size, never an exception."""

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 8 * 1024 * 1024
"""Longest answer that is read; a longer one is cut."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
    """Return the answer to a GET, or to a POST of `body` as JSON, within about `timeout_s`."""
    if not url.startswith(("http://", "https://")):
        return Reply(url, None, "", "not an http:// or https:// address")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    deadline = time.monotonic() + timeout_s
    try:
        request = urllib.request.Request(url, data=data, headers=headers)
        with _OPENER.open(request, timeout=timeout_s) as response:
            return Reply(url, response.status, _read(response, deadline), None)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(url, error)
    except TimeoutError:
        return Reply(url, None, "", f"no answer within {timeout_s:g} s")
    except urllib.error.URLError as error:
        return Reply(url, None, "", _reason(error.reason, timeout_s))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Reply(url, None, "", f"{type(error).__name__}: {shorten(str(error))}")


def _read(response: http.client.HTTPResponse, deadline: float) -> str:
    parts: list[bytes] = []
    size = 0
    while size < MAX_BYTES:
        part = response.read1(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)[:MAX_BYTES].decode("utf-8", "replace")


def _refused(url: str, error: urllib.error.HTTPError) -> Reply:
    try:
        text = error.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    said = f": {shorten(text)}" if text.strip() else ""
    return Reply(url, error.code, text, f"HTTP status {error.code}{said}")


def _reason(reason: Any, timeout_s: float) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return shorten(str(reason))
