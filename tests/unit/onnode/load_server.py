"""A scripted HTTP server for tests of the load client: says exactly what it is told, when told."""

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.waiting import WAIT_S

Script = Callable[[int, dict[str, Any]], Iterable[bytes | float | None]]

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


class Request:
    def __init__(self, number: int, connection: int, head: str, body: dict[str, Any]) -> None:
        self.number, self.connection, self.head, self.body = number, connection, head, body
        self.got_ns = time.monotonic_ns()


class ScriptServer:
    """Answers each request with `script(its number, its body)`.

    Bytes are sent as they are, a float is slept, None closes the connection.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.errors: list[Exception] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = False
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> "ScriptServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        assert not self.errors, self.errors

    def _accept(self) -> None:
        while not self._closing:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, len(self._open)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        try:
            with sock, sock.makefile("rb") as stream:
                while self._answer(sock, stream, connection):
                    pass
        except OSError:
            return
        except Exception as error:  # noqa: BLE001 - raised again when the server is left
            self.errors.append(error)

    def _answer(self, sock: socket.socket, stream: Any, connection: int) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return False
            head += line
        text = head.decode("ascii")
        length = next(
            int(line.split(":")[1])
            for line in text.splitlines()
            if line.lower().startswith("content-length")
        )
        body = json.loads(stream.read(length))
        with self._lock:
            number = len(self.requests)
            self.requests.append(Request(number, connection, text, body))
        for item in self.script(number, body):
            if item is None:
                return False
            if isinstance(item, bytes):
                sock.sendall(item)
            else:
                until = time.monotonic() + item
                while not self._closing and time.monotonic() < until:
                    time.sleep(min(0.02, max(0.0, until - time.monotonic())))
        return True


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(marks) if a < b]


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return b"data: " + text.encode() + b"\n\n"


def text_chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def stream(body: dict[str, Any], gap: float = 0.0, first: float = 0.0) -> Iterator[bytes | float]:
    """A correct answer: one token an event, usage in a chunk of its own, [DONE]."""
    count = body["max_tokens"]
    yield STREAM_HEAD
    yield first
    for number in range(count):
        finish = "length" if number == count - 1 else None
        yield chunk(event(text_chunk(" tok", finish)))
        if number < count - 1:
            yield gap
    last = {"choices": [], "usage": usage(len(body["prompt"]), count)}
    yield chunk(event(last)) + chunk(event("[DONE]")) + END


def answer(status: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body
