"""A connection that is in use: channels on it, and a watch that notices when the peer is gone."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paramiko

from servemap.model.errors import NodeError
from servemap.nodes.ssh_connection import Opened
from servemap.nodes.ssh_errors import lost

# A peer that was not heard for QUIET_S while somebody waits is asked; after DEAD_S it is given up.
QUIET_S, DEAD_S, TICK_S = 2.0, 6.0, 0.25
CHANNEL_S, AGAIN_S = 5.0, 0.02
# sshd allows 10 sessions a connection by default (MaxSessions); some are for the watch and kills.
SESSIONS = 8


class Link:
    """One open connection; `opened` is closed when it is given up or closed.

    Socket options notice a machine that is gone only where the socket is ours and leads to it. So
    whoever waits for the peer does so under a watch that asks it for an answer, which works
    through jump hosts and proxies as well and also notices a machine that hangs.
    """

    def __init__(self, opened: Opened, where: str) -> None:
        self.where = where
        self._opened = opened
        self._transport = opened.transport
        self._slots = threading.BoundedSemaphore(SESSIONS)
        self._change = threading.Condition()
        self._waiting = 0
        self._since_s = 0.0
        self._asking = False
        self._why: str | None = None
        self._closed = False
        threading.Thread(target=self._watch, name=f"watch {where}", daemon=True).start()

    @property
    def usable(self) -> bool:
        """Whether a channel can be asked for."""
        return not self._closed and bool(self._transport.is_active())

    def close(self) -> None:
        """Close the connection; who waits on it gets ConnectionLostError."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        # The watch may close it at the same time; a pipe that is closed twice is a ValueError.
        with suppress(OSError, EOFError, ValueError):
            self._opened.close()

    def lost(self, error: object = None) -> NodeError:
        """Return the error of this connection's end."""
        why = self._why or ("it was closed" if error is None else str(error) or repr(error))
        return lost(self.where, why)

    @contextmanager
    def session(self, *, urgent: bool = False) -> Iterator[Any]:
        """Give a channel for one command, closed at the end, and watch the peer meanwhile.

        `urgent` is for the short command that ends another one's: it never queues behind those.

        Raises:
            ConnectionLostError: the connection broke.
            NodeError: sshd refuses another session.
        """
        if not urgent:
            self._slots.acquire()
        try:
            with self._watched(), self._losing():
                channel = self._open()
                try:
                    yield channel
                finally:
                    channel.close()
        finally:
            if not urgent:
                self._slots.release()

    def _open(self) -> Any:
        """Open a session; sshd counts those that were closed for a moment longer than we do.

        Of a refusal in another thread paramiko tells us, and not always what kind of error it was.
        """
        deadline = time.monotonic() + CHANNEL_S
        while True:
            try:
                return self._transport.open_session(timeout=CHANNEL_S)
            except paramiko.SSHException as error:
                late = time.monotonic() > deadline
                if late and not isinstance(error, paramiko.ChannelException):
                    self._why = self._why or f"no answer within {CHANNEL_S:g} s"
                    self.close()
                if late or not self.usable:
                    raise
                time.sleep(AGAIN_S)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except paramiko.ChannelException as error:
            raise NodeError(
                f"sshd refuses another session: {error}",
                self.where,
                f"allow MaxSessions {SESSIONS + 2} there",
            ) from error
        except (paramiko.SSHException, EOFError, ConnectionError) as error:
            raise self.lost(error) from error

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with self._change:
            if self._waiting == 0:
                self._since_s = time.monotonic()
            self._waiting += 1
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._waiting -= 1

    def _watch(self) -> None:
        """Give the peer up when it is silent; time in which we did not run is no silence."""
        known_s = absent_s = missed_s = 0.0
        while self.usable:
            with self._change:
                if self._waiting == 0 and not self._closed:
                    self._change.wait()
                    continue
                since = self._since_s
            now_s = time.monotonic()
            heard_s = max(since, self._transport.packetizer.heard_s)
            if heard_s == known_s:
                absent_s += missed_s
            else:
                known_s, absent_s = heard_s, min(missed_s, now_s - heard_s)
            silent = now_s - heard_s - absent_s
            if silent > DEAD_S:
                self._why = f"no sign of life for {DEAD_S:g} s"
                self.close()
            elif silent > QUIET_S and not self._asking:
                # It may block behind a send that goes nowhere, so not in this thread.
                self._asking = True
                threading.Thread(target=self._ask, name="ask", daemon=True).start()
            time.sleep(TICK_S)
            missed_s = max(0.0, time.monotonic() - now_s - 2 * TICK_S)
        # Also after a loss that the transport noticed: a proxy process must not stay.
        self.close()

    def _ask(self) -> None:
        """Do a round trip; a refusal is an answer too."""
        with suppress(paramiko.SSHException, EOFError, OSError):
            self._transport.open_session(timeout=DEAD_S).close()
        self._asking = False
