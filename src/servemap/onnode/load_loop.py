"""The measured window: one thread, one epoll, raw sockets.

Inside the window the loop stamps every write and read where it happens and keeps bytes; it
interprets only the framing that shows where a response ends. Linux only, as epoll is.
"""

import errno
import gc
import heapq
import select
import time
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Optional, Set, Tuple, Union

from .load_call import AHEAD_S, Call, Lane
from .load_conn import MAX_EVENTS, Address, Conn, Pool
from .load_http import FramingError
from .load_keep import Keep
from .load_late import ROOM, Lateness, late_ns, waited_s

READ_SIZE = 65536
# Requests started between two looks at the sockets, so that a burst of sends does not delay reads.
BURST = 8
TICK_S = 0.1
AHEAD_NS = int(AHEAD_S * 1e9)
CASE_TIMEOUT = "case timeout"
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)

Read = Tuple[Conn, Union[bytes, OSError], int]


class Window(NamedTuple):
    """What a window brought: times in monotonic ns.

    `waited_s`: time without a core though there was work, None where the kernel does not tell.
    `stopped`: why it ended early, or None. `keep_alive`: whether the server really keeps its
    connections open after a response, as far as this window showed.
    """

    calls: List[Call]
    start_ns: int
    end_ns: int
    cpu_s: float
    waited_s: Optional[float]
    max_lag_ns: int
    late: Lateness
    stopped: Optional[str]
    keep_alive: bool


class Loop:
    """Runs the streams of one segment against one address."""

    def __init__(
        self,
        address: Address,
        lanes: List[Lane],
        timeout_ns: int,
        min_window_ns: int,
        deadline_ns: int,
        stop: Callable[[], Optional[str]],
        keep_alive: bool,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = Pool(address, lanes, keep_alive)
        self._lanes = lanes
        self._timeout_ns = timeout_ns
        self._min_window_ns = min_window_ns
        self._deadline_ns = deadline_ns
        self._stop = stop
        self._began = began
        self._active: Set[Conn] = set()
        self._calls: List[Call] = []
        self._due: Deque[Tuple[Lane, int, Optional[Call]]] = deque()
        # What happens at set times, latest first: (ns, is it a send, lane).
        self._timeline: List[Tuple[int, bool, Lane]] = []
        # Turns of conversations that wait for their time: (ns, tie, lane, turn before).
        self._pauses: List[Tuple[int, int, Lane, Call]] = []
        self._start_ns = 0
        self._lag_ns = 0
        self._late = Lateness()
        self._stopped: Optional[str] = None
        self._keep = Keep()

    def run(self, linger: bool) -> Window:
        """Connect, start the clock, send everything, and return when the last request ended.

        With `linger`, watch the idle connections for a moment afterwards: some servers announce
        keep-alive and close all the same, and every reuse would then be a wasted try.
        """
        try:
            self._pool.open_ahead(self._stop)
            gc.collect()
            gc.disable()
            window = self._window()
            if linger and window.stopped is None:
                self._pool.watch_idle()
            return window._replace(keep_alive=self._pool.keep_alive)
        finally:
            gc.enable()
            self._pool.close()

    def _window(self) -> Window:
        waited, cpu = waited_s(), time.process_time()
        self._start_ns = now = time.monotonic_ns()
        self._began()
        for lane in self._lanes:
            if lane.closed:
                self._due.extend([(lane, now, None)] * lane.slots)
            for offset in lane.stream.at_s:
                due = now + int(offset * 1e9)
                self._timeline.append((due, True, lane))
                if offset >= AHEAD_S:
                    self._timeline.append((due - AHEAD_NS, False, lane))
        self._timeline.sort(key=lambda entry: entry[0], reverse=True)
        try:
            self._rounds()
        # Whatever breaks, the requests that were made are kept.
        except Exception as error:  # noqa: BLE001
            self._stopped = f"internal: {type(error).__name__}: {error}"
        self._end_rest()
        end = max([self._start_ns, *(call.ended_ns for call in self._calls)])
        cpu = time.process_time() - cpu
        after = waited_s()
        return Window(
            self._calls,
            self._start_ns,
            end,
            cpu,
            None if waited is None or after is None else after - waited,
            self._lag_ns,
            self._late,
            self._stopped,
            True,
        )

    def _rounds(self) -> None:
        monotonic_ns, poll, conns = time.monotonic_ns, self._pool.epoll.poll, self._pool.conns
        woken = next_tick = monotonic_ns()
        while True:
            now = monotonic_ns()
            if now >= next_tick:
                next_tick = now + int(TICK_S * 1e9)
                self._tick(now)
            if self._stopped:
                return
            self._start_due()
            if not (self._active or self._due or self._timeline or self._pauses):
                return
            now = monotonic_ns()
            hungry = self._hungry(now)
            crowded = self._keep.crowded()
            wait = 0.0 if hungry or crowded else self._wait_s(now)
            self._lag_ns = max(self._lag_ns, now - woken)
            ready = poll(wait, MAX_EVENTS)
            woken = monotonic_ns()
            if not ready:
                self._lag_ns = max(self._lag_ns, woken - now - int(wait * 1e9))
                if hungry:
                    hungry.prepare()
                elif crowded:
                    self._keep.pack_one()
                continue
            reads: List[Read] = []
            late: Optional[int] = None
            writable: List[Conn] = []
            # All that is ready is read and stamped before any of it is looked at.
            for fd, event in ready:
                conn = conns[fd]
                if event & ~select.EPOLLOUT:
                    try:
                        if reads:
                            reads.append((conn, conn.recv(READ_SIZE), monotonic_ns()))
                        else:
                            # The first was ready first; the others are at most so late, and later
                            # by what reading those before them took.
                            data, stamps, _, _ = conn.sock.recvmsg(READ_SIZE, ROOM)
                            reads.append((conn, data, monotonic_ns()))
                            late = late_ns(stamps)
                    except BlockingIOError:
                        continue
                    except OSError as error:
                        reads.append((conn, error, monotonic_ns()))
                else:
                    writable.append(conn)
            if late is not None:
                self._late.add(late + reads[-1][2] - reads[0][2], len(reads))
            for conn, got, when in reads:
                self._on_read(conn, got, when)
            for conn in writable:
                self._on_writable(conn)

    def _start_due(self) -> None:
        timeline, due = self._timeline, self._due
        while timeline and timeline[-1][0] <= time.monotonic_ns():
            due_ns, send, lane = timeline.pop()
            if send:
                lane.expected -= 1
                due.append((lane, due_ns, None))
            else:
                self._pool.expect(lane)
        while self._pauses and self._pauses[0][0] <= time.monotonic_ns():
            due_ns, _, lane, turn = heapq.heappop(self._pauses)
            due.append((lane, due_ns, turn))
        for _ in range(min(BURST, len(due))):
            lane, scheduled_ns, before = due.popleft()
            if lane.has_next(before) or self._another_wave(lane):
                call = lane.take(scheduled_ns, before)
                self._calls.append(call)
                self._start(call, self._pool.take(lane))

    def _end_rest(self) -> None:
        """End the requests that were in flight when the window ended early."""
        outcome = "timeout" if self._stopped == CASE_TIMEOUT else "aborted"
        now = time.monotonic_ns()
        for call in self._calls:
            if not call.outcome:
                call.outcome, call.detail = outcome, f"the client stopped: {self._stopped}"
                call.ended_ns, call.payload = now, b""

    def _another_wave(self, lane: Lane) -> bool:
        early = time.monotonic_ns() - self._start_ns < self._min_window_ns
        return lane.closed and early and lane.extend()

    def _hungry(self, now: int) -> Optional[Lane]:
        """Return a stream that spare time should prepare a request for."""
        if self._due:
            return None
        repeats = now - self._start_ns < self._min_window_ns
        for lane in self._lanes:
            if lane.wants_more(repeats):
                return lane
        return None

    def _wait_s(self, now: int) -> float:
        if self._due:
            return 0.0
        if not (self._timeline or self._pauses):
            return TICK_S
        next_ns = min(
            [
                *(entry[0] for entry in self._timeline[-1:]),
                *(entry[0] for entry in self._pauses[:1]),
            ]
        )
        # epoll rounds up to whole milliseconds; the last one is spent polling.
        return max(0.0, min(TICK_S, (next_ns - now) / 1e9 - 0.001))

    def _tick(self, now: int) -> None:
        for conn in list(self._active):
            call = conn.call
            if call is not None and now - call.scheduled_ns > self._timeout_ns:
                what = "the response did not end" if call.sent_ns else "the request was not sent"
                self._finish(conn, "timeout", f"{what} within {self._timeout_ns / 1e9:g} s")
        self._stopped = CASE_TIMEOUT if now > self._deadline_ns else self._stop()

    def _start(self, call: Call, conn: Optional[Conn]) -> None:
        call.attempts += 1
        try:
            if conn is None:
                conn = self._pool.open(call.lane)
        except OSError as error:
            outcome = "refused"
            if error.errno in OUT_OF_FILES:
                outcome, self._stopped = "aborted", f"{error.strerror}: raise ulimit -n"
            self._end_call(call, outcome, _said(error), time.monotonic_ns())
            return
        conn.call = call
        conn.reused = conn.connected_ns is not None
        self._active.add(conn)
        if conn.reused:
            self._send(conn, call)

    def _send(self, conn: Conn, call: Call) -> None:
        call.connected_ns = conn.connected_ns
        now = time.monotonic_ns()
        try:
            count = conn.sock.send(call.payload)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._lost(conn, call, _said(error))
            return
        if call.sent_ns is None:
            call.sent_ns = now
        if count < len(call.payload):
            conn.rest = memoryview(call.payload)[count:]
            self._pool.wait_for(conn, select.EPOLLIN | select.EPOLLOUT)

    def _on_writable(self, conn: Conn) -> None:
        call = conn.call
        if conn.connected_ns is None:
            failed = self._pool.established(conn)
            if failed is not None:
                self._on_read(conn, failed, time.monotonic_ns())
            elif call is not None:
                self._send(conn, call)
        elif conn.rest is not None and call is not None:
            try:
                conn.rest = conn.rest[conn.sock.send(conn.rest) :]
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(conn, call, _said(error))
                return
            if not conn.rest:
                conn.rest = None
                self._pool.wait_for(conn, select.EPOLLIN)

    def _on_read(self, conn: Conn, data: Union[bytes, OSError], when: int) -> None:
        call = conn.call
        if call is None:
            # An idle connection that speaks or ends is of no use any more.
            self._pool.lost(conn)
        elif isinstance(data, OSError):
            if conn.connected_ns is None:
                self._finish(conn, "refused", _said(data), when)
            else:
                self._lost(conn, call, _said(data))
        elif not data:
            if call.response.end():
                self._finish(conn, "complete", "", when)
            else:
                self._lost(conn, call, "the server closed the connection")
        else:
            try:
                done = call.response.feed(data, when)
            except FramingError as error:
                self._finish(conn, "protocol", str(error), when)
                return
            # What nobody thought of costs this request, not those of the other connections.
            except Exception as error:  # noqa: BLE001
                self._finish(conn, "protocol", f"{type(error).__name__}: {error}", when)
                return
            if done:
                self._finish(conn, "complete", "", when)

    def _lost(self, conn: Conn, call: Call, why: str) -> None:
        """End a request whose connection broke, or try once more on a new connection.

        A server may close an idle connection while a request is on its way (RFC 9112, 9.3.1);
        only then, and only before any byte of an answer, is a second try the same request.
        """
        if conn.reused and call.response.last_ns is None:
            self._active.discard(conn)
            self._pool.lost(conn)
            self._start(call, None)
        else:
            self._finish(conn, "cut", why)

    def _finish(self, conn: Conn, outcome: str, detail: str, when: Optional[int] = None) -> None:
        call, conn.call = conn.call, None
        self._active.discard(conn)
        if call is None:
            return
        response = call.response
        whole = outcome == "complete" and conn.rest is None and not response.surplus
        if whole and response.keep_alive:
            self._pool.give(conn)
        else:
            self._pool.drop(conn)
        self._end_call(call, outcome, detail, time.monotonic_ns() if when is None else when)

    def _end_call(self, call: Call, outcome: str, detail: str, when: int) -> None:
        call.outcome, call.detail, call.ended_ns = outcome, detail, when
        call.payload = b""
        self._keep.add(call.response)
        lane = call.lane
        lane.ended(outcome == "complete" and call.response.status == 200)
        if lane.closed:
            pause_ns = lane.pause_ns(call)
            if pause_ns:
                heapq.heappush(self._pauses, (when + pause_ns, id(call), lane, call))
            else:
                self._due.append((lane, when, call))


def _said(error: OSError) -> str:
    return error.strerror or str(error)
