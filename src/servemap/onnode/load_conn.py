"""Connections to one server: opened without waiting, kept while idle, dropped when of no use."""

import errno
import os
import select
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .load_call import Call, Lane
from .load_late import ask_for_stamps

CONNECT_S = 5.0
LINGER_S = 0.02
POLL_S = 0.1
MAX_EVENTS = 256

Address = Tuple[int, Any]


class Conn:
    """One connection; `call` is the request that it carries, None while it is idle.

    `connected_ns` is None until it is established, `rest` is what of a request is unsent,
    `reused` tells that it was established before its request was due, `served` that it has
    answered one.
    """

    __slots__ = ("call", "connected_ns", "fd", "lane", "recv", "rest", "reused", "served", "sock")

    def __init__(self, sock: socket.socket, lane: Lane) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.recv = sock.recv
        self.lane = lane
        self.call: Optional[Call] = None
        self.connected_ns: Optional[int] = None
        self.rest: Optional[memoryview] = None
        self.reused = False
        self.served = False


class Pool:
    """The connections of one window; idle ones belong to the stream that opened them.

    `keep_alive` turns False once the server closed a connection that it said it would keep:
    every reuse would then be a wasted try.
    """

    def __init__(self, address: Address, lanes: List[Lane], keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.epoll = select.epoll()
        self.conns: Dict[int, Conn] = {}
        self._family, self._address = address
        self._idle: Dict[Lane, List[Conn]] = {lane: [] for lane in lanes}

    def open(self, lane: Lane) -> Conn:
        """Begin to connect; raises OSError."""
        sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(sock)
            code = sock.connect_ex(self._address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError:
            sock.close()
            raise
        conn = Conn(sock, lane)
        self.conns[conn.fd] = conn
        self.epoll.register(conn.fd, select.EPOLLIN | select.EPOLLOUT)
        return conn

    def open_idle(self, lane: Lane) -> None:
        """Begin to connect for a request that is not due yet."""
        try:
            self._idle[lane].append(self.open(lane))
        except OSError:
            # The request that wants this connection will try, and say what is wrong.
            return

    def expect(self, lane: Lane) -> None:
        """Have a connection for one more request that is due soon, an idle one where there is."""
        lane.expected += 1
        if len(self._idle[lane]) < lane.expected:
            self.open_idle(lane)

    def open_ahead(self, stop: Callable[[], Optional[str]]) -> None:
        """Connect what is needed at once, and wait until that is done or hopeless."""
        for lane in self._idle:
            for _ in range(lane.slots if lane.closed else lane.early):
                self.open_idle(lane)
        give_up = time.monotonic() + CONNECT_S
        while stop() is None and time.monotonic() < give_up:
            if all(conn.connected_ns for conn in self.conns.values()):
                break
            for fd, _ in self.epoll.poll(POLL_S, MAX_EVENTS):
                conn = self.conns[fd]
                if conn.connected_ns is not None or self.established(conn) is not None:
                    self.drop(conn)
        for conn in list(self.conns.values()):
            if conn.connected_ns is None:
                self.drop(conn)

    def established(self, conn: Conn) -> Optional[OSError]:
        """Take note that `conn` finished connecting; returns why it failed, if it did."""
        code = conn.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return OSError(code, os.strerror(code))
        conn.connected_ns = time.monotonic_ns()
        self.wait_for(conn, select.EPOLLIN)
        return None

    def wait_for(self, conn: Conn, events: int) -> None:
        """Choose the events that wake the loop for `conn`."""
        self.epoll.modify(conn.fd, events)

    def take(self, lane: Lane) -> Optional[Conn]:
        """Hand out an idle connection (it may still be connecting), if there is one."""
        idle = self._idle[lane]
        return idle.pop() if idle else None

    def give(self, conn: Conn) -> None:
        """Keep a connection whose response is complete, as long as the server does."""
        conn.served = True
        if self.keep_alive:
            self._idle[conn.lane].append(conn)
        else:
            self.drop(conn)

    def lost(self, conn: Conn) -> None:
        """Drop a connection that the server closed while it was idle."""
        self.keep_alive = self.keep_alive and not conn.served
        self.drop(conn)

    def drop(self, conn: Conn) -> None:
        """Close a connection."""
        idle = self._idle[conn.lane]
        if conn in idle:
            idle.remove(conn)
        self.epoll.unregister(conn.fd)
        del self.conns[conn.fd]
        conn.sock.close()

    def watch_idle(self) -> None:
        """Look for a moment whether the server closes the connections that it said to keep."""
        give_up = time.monotonic() + LINGER_S
        while self.conns and self.keep_alive and time.monotonic() < give_up:
            for fd, _ in self.epoll.poll(LINGER_S / 4, MAX_EVENTS):
                self.lost(self.conns[fd])

    def close(self) -> None:
        """Close everything."""
        for conn in self.conns.values():
            conn.sock.close()
        self.conns.clear()
        self.epoll.close()
