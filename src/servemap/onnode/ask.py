"""`ask`: short HTTP questions to a server: no proxies, no redirects, bounded, never an exception.

A JSON list of `{"url", "timeout_s", "body"?}` comes on stdin, the list of replies
`{"url", "status", "text", "error"}` goes to stdout in the same order. `status` is null where no
HTTP answer came; `error` is null for an answer with status 2xx.
"""

import argparse
import http.client
import json
import socket
import sys
import threading
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlsplit, urlunsplit

MAX_BYTES = 8 * 1024 * 1024
"""Longest answer that is read; a longer one is cut."""

Reply = Dict[str, Any]


def shorten(text: str, limit: int = 200) -> str:
    """Return a text on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def ask(
    url: str,
    timeout_s: float,
    body: Optional[Dict[str, Any]] = None,
    *,
    bearer: Optional[str] = None,
) -> Reply:
    """Return the answer to a GET, or to a POST of `body` as JSON, within about `timeout_s`.

    The limit is for the whole exchange, however slowly the bytes come. Redirects are not
    followed: what another address answers says nothing about this server. http.client knows
    nothing of proxy variables.
    """
    if not url.startswith(("http://", "https://")):
        return _reply(url, None, "", "not an http:// or https:// address")
    try:
        connection, target = _connection(url, timeout_s)
    except (http.client.HTTPException, ValueError) as error:
        return _reply(url, None, "", _reason(error, timeout_s))
    replies: List[Reply] = []
    opened: List[socket.socket] = []

    def exchange() -> None:
        try:
            connection.connect()
            opened.append(connection.sock)
            replies.append(_exchange(url, connection, target, body, bearer))
        except (OSError, http.client.HTTPException, ValueError) as error:
            replies.append(_reply(url, None, "", _reason(error, timeout_s)))
        finally:
            connection.close()

    thread = threading.Thread(target=exchange, name="ask", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not replies:
        _hang_up(opened)
        return _reply(url, None, "", "no answer within %g s" % timeout_s)
    return replies[0]


def _reply(url: str, status: Optional[int], text: str, error: Optional[str]) -> Reply:
    return {"url": url, "status": status, "text": text, "error": error}


def _connection(url: str, timeout_s: float) -> Tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the address names no host")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return kind(parts.hostname, parts.port, timeout=timeout_s), target


def _exchange(
    url: str,
    connection: http.client.HTTPConnection,
    target: str,
    body: Optional[Dict[str, Any]],
    bearer: Optional[str],
) -> Reply:
    data = None if body is None else json.dumps(body).encode()
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "Connection": "close",
    }
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    connection.request("GET" if data is None else "POST", target, data, headers)
    response = connection.getresponse()
    if 200 <= response.status < 300:
        return _reply(url, response.status, _read(response), None)
    return _refused(url, response)


def _hang_up(opened: List[socket.socket]) -> None:
    """End an exchange that another thread waits in; the connection may have let its socket go."""
    for waiting in opened:
        try:
            # An SSL socket's own method also drops state that the other thread uses.
            socket.socket.shutdown(waiting, socket.SHUT_RDWR)
        except OSError:
            continue


def _read(response: http.client.HTTPResponse) -> str:
    parts: List[bytes] = []
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
    status = "HTTP status %d" % response.status
    if 300 <= response.status < 400 and location:
        said = ": a redirect to %s, which is not followed" % shorten(location)
        return _reply(url, response.status, "", status + said)
    try:
        text = _read(response)
    except (OSError, http.client.HTTPException):
        text = ""
    said = ": " + shorten(text) if text.strip() else ""
    return _reply(url, response.status, text, status + said)


def _reason(error: Exception, timeout_s: float) -> str:
    # On Python before 3.10 a socket's time-out is not a TimeoutError.
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "no answer within %g s" % timeout_s
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "%s: %s" % (type(error).__name__, shorten(str(error)))


def parse_questions(text: str) -> List[Tuple[str, float, Optional[Dict[str, Any]]]]:
    """Parse the questions of stdin into (url, timeout_s, body). ValueError if they are none."""
    questions = json.loads(text)
    if not isinstance(questions, list):
        raise ValueError("not a list of questions")
    found = []
    for one in questions:
        if not isinstance(one, dict) or not isinstance(one.get("url"), str):
            raise ValueError("a question names no url")
        timeout_s, body = one.get("timeout_s"), one.get("body")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
            raise ValueError("a question has no timeout_s above 0")
        if body is not None and not isinstance(body, dict):
            raise ValueError("the body of a question is not an object")
        found.append((one["url"], float(timeout_s), body))
    return found


def main(argv: List[str]) -> int:
    """Run `ask`, the questions one after the other; 2 on questions that are none."""
    argparse.ArgumentParser(prog="ask").parse_args(argv)
    try:
        questions = parse_questions(sys.stdin.read())
    except (ValueError, RecursionError) as error:
        print("ask: %s" % error, file=sys.stderr)
        return 2
    json.dump([ask(*question) for question in questions], sys.stdout)
    print()
    return 0
