"""The reference server's loop: one thread, one epoll; every write is stamped where it happens."""

import heapq
import json
import os
import select
import socket
import time
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

from .load_clock import take_anchor
from .ref_frames import (
    Asked,
    Frame,
    PrefixCache,
    frames,
    pages,
    plain,
    read_request,
    refusal,
    whole_answer,
)
from .ref_script import Answer, Script, choose, under_load

READ_SIZE = 65536
BACKLOG = 4096
TICK_S = 0.1
FLUSHES = ("/reset_prefix_cache", "/flush_cache")
# epoll waits whole milliseconds; the last one before something is due is spent polling.
SPIN_S = 0.001

Json = Dict[str, Any]


class Talk:
    """One connection: what came, what is being answered, what could not be written yet."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.data = b""
        self.unsent = b""
        self.blocked = False
        self.row: Optional[Json] = None
        self.received_ns = 0
        self.frames: Iterator[Frame] = iter(())
        self.next: Optional[Frame] = None
        self.after = "keep"


class Server:
    """Answers by a script until `end` is called; `log` gets one JSON line a request, epoch ns."""

    def __init__(self, script: Script, address: Tuple[str, int], log: IO[str]) -> None:
        self._ended = False
        self._script = script
        self._log = log
        self._anchor = take_anchor()
        self._listener = socket.create_server(address, backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._talks: Dict[int, Talk] = {}
        self._due: List[Tuple[int, int, Talk]] = []
        self._pushed = 0
        self._accepted = 0
        self._tries: Dict[str, Tuple[int, int]] = {}
        self._cache = PrefixCache()
        self._write(
            {
                "schema": 1,
                "pid": os.getpid(),
                "model": script.model,
                "clock": {"wall_ns": self._anchor.wall_ns, "mono_ns": self._anchor.mono_ns},
            }
        )

    def run(self) -> None:
        """Serve until `end`; then note the requests that were not answered to their end."""
        while not self._ended:
            ready = self._epoll.poll(self._wait_s())
            for fd, event in ready:
                if fd == self._listener.fileno():
                    self._accept()
                elif fd in self._talks:
                    self._on_event(self._talks[fd], event)
            self._fire()
        for talk in list(self._talks.values()):
            self._drop(talk, "server stopped")
        self._listener.close()
        self._epoll.close()

    def end(self) -> None:
        """Have `run` return soon; may be called by a signal's handler."""
        self._ended = True

    def _wait_s(self) -> float:
        if not self._due:
            return TICK_S
        return max(0.0, min(TICK_S, (self._due[0][0] - time.monotonic_ns()) / 1e9 - SPIN_S))

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._talks[sock.fileno()] = Talk(sock, self._accepted)
            self._accepted += 1
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _on_event(self, talk: Talk, event: int) -> None:
        if event & select.EPOLLOUT:
            self._send(talk, b"")
        if not event & ~select.EPOLLOUT:
            return
        try:
            data = talk.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.monotonic_ns()
        if not data:
            self._drop(talk, "client closed")
            return
        talk.data += data
        if talk.row is None:
            self._read(talk, now)

    def _read(self, talk: Talk, now: int) -> None:
        """Take a whole request, if it is there."""
        end = talk.data.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = talk.data[:end].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "0")
        size = int(length) if length.isdigit() else 0
        if len(talk.data) < end + 4 + size:
            return
        body, talk.data = talk.data[end + 4 : end + 4 + size], talk.data[end + 4 + size :]
        method, path = [*first.split(" "), "", ""][:2]
        if method == "POST" and path.partition("?")[0] in FLUSHES:
            self._cache = PrefixCache()
            row = {"id": "flush", "path": path, "status": 200}
            self._write({**row, "received_ns": now + self._anchor.epoch_ns})
            self._send(talk, plain(200, {"success": True}))
        elif method == "POST":
            self._ask(talk, path, headers, body, now)
        else:
            status, page = pages(self._script.model).get(path, (404, {"error": "no such page"}))
            self._send(talk, plain(status, page))

    def _ask(self, talk: Talk, path: str, headers: Dict[str, str], body: bytes, now: int) -> None:
        try:
            asked = read_request(path, json.loads(body.decode("utf-8")))
        except ValueError as error:
            self._send(talk, plain(400, {"error": {"message": str(error)}}))
            return
        name = headers.get("x-request-id", f"connection-{talk.number}-{now}")
        ordinal, attempt = self._tries.get(name, (len(self._tries), 0))
        self._tries[name] = (ordinal, attempt + 1)
        in_flight = 1 + sum(other.row is not None for other in self._talks.values())
        answer = under_load(choose(self._script, name, ordinal, attempt), in_flight)
        cached = answer.cached_tokens
        found = self._cache.cached(asked.prompt) if cached == "prefix" else None
        talk.row = {
            "id": name,
            "request": ordinal,
            "try": attempt,
            "connection": talk.number,
            "path": path,
            "prompt_tokens": len(asked.prompt),
            "max_tokens": asked.max_tokens,
            "cached_tokens": found if cached == "prefix" else cached,
            "status": None if answer.drop else answer.status,
            "received_ns": now + self._anchor.epoch_ns,
            "due_ns": [],
            "t_ns": [],
            "kinds": "",
            "tokens": [],
        }
        talk.received_ns = now
        self._begin(talk, answer, asked, talk.row["cached_tokens"])

    def _begin(self, talk: Talk, answer: Answer, asked: Asked, cached: Optional[int]) -> None:
        if answer.drop:
            self._drop(talk, "dropped")
            return
        talk.after = "close" if answer.close else "keep"
        if answer.status != 200:
            talk.frames = iter([refusal(answer)])
        elif not asked.stream:
            talk.frames = iter([whole_answer(answer, asked, cached)])
        else:
            talk.frames = frames(answer, asked, cached)
            if answer.cut_after is not None:
                talk.after = "cut"
            if answer.hang_after is not None:
                talk.after = "hang"
        self._plan(talk, next(talk.frames, None))

    def _plan(self, talk: Talk, frame: Optional[Frame]) -> None:
        """Note when the next frame is due: it is made ahead, so that only its write is left."""
        talk.next = frame
        if talk.next is not None:
            self._pushed += 1
            due = talk.received_ns + talk.next.due_ns
            heapq.heappush(self._due, (due, self._pushed, talk))
        elif talk.after == "keep":
            self._end(talk, "done")
            self._read(talk, time.monotonic_ns())
        elif talk.after != "hang":
            self._drop(talk, "cut" if talk.after == "cut" else "done")

    def _fire(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, _, talk = heapq.heappop(self._due)
            frame = talk.next
            if frame is None or talk.row is None:
                continue  # the client left
            row, data, now = talk.row, frame.data, time.monotonic_ns()
            due = talk.received_ns + frame.due_ns
            # What is late goes out with one write, as a server that was held up does.
            late = [frame]
            following = next(talk.frames, None)
            while following is not None and talk.received_ns + following.due_ns <= max(now, due):
                late.append(following)
                data += following.data
                following = next(talk.frames, None)
            now = time.monotonic_ns()
            for item in late:
                if item.kind:
                    row["due_ns"].append(talk.received_ns + item.due_ns + self._anchor.epoch_ns)
                    row["t_ns"].append(now + self._anchor.epoch_ns)
                    row["kinds"] += item.kind
                    row["tokens"].append(item.tokens)
            if self._send(talk, data):
                self._plan(talk, following)

    def _send(self, talk: Talk, data: bytes) -> bool:
        """Write, keeping what does not fit; False if the client left."""
        talk.unsent += data
        try:
            count = talk.sock.send(talk.unsent) if talk.unsent else 0
        except BlockingIOError:
            count = 0
        except OSError:
            self._drop(talk, "client closed")
            return False
        talk.unsent = talk.unsent[count:]
        if bool(talk.unsent) != talk.blocked:
            talk.blocked = not talk.blocked
            wanted = select.EPOLLIN | (select.EPOLLOUT if talk.blocked else 0)
            self._epoll.modify(talk.sock.fileno(), wanted)
        return True

    def _drop(self, talk: Talk, how: str) -> None:
        del self._talks[talk.sock.fileno()]
        self._epoll.unregister(talk.sock.fileno())
        talk.sock.close()
        self._end(talk, how)

    def _end(self, talk: Talk, how: str) -> None:
        row, talk.row, talk.next = talk.row, None, None
        if row is not None:
            ended = time.monotonic_ns() + self._anchor.epoch_ns
            self._write({**row, "ended": how, "ended_ns": ended})

    def _write(self, row: Json) -> None:
        self._log.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._log.flush()
