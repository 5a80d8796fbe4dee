"""Processes on several nodes that serve as one: rank 0 loads its model when all have joined.

The other ranks hold no part of the model. They stand for those of an engine that splits it: they
must be started, they are missed when they end, and they end with rank 0.
"""

import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

from .say import StartError, log

JOIN_S = 120.0
RETRY_S = 0.2


def endpoint(master: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT.

    Raises:
        StartError: it is none.
    """
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal():
        raise StartError(f"--master must be HOST:PORT, not {master!r}")
    return host.strip("[]"), int(port)


def gather(master: str, count: int) -> None:
    """Wait until ranks 1 to `count` - 1 have joined; from then on end when one of them is gone.

    Raises:
        StartError: the port is taken, or a rank did not join in time.
    """
    host, port = endpoint(master)
    missing = set(range(1, count))
    try:
        listener = socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        raise StartError(f"cannot listen on {master}: {error.strerror}") from error
    with listener:
        deadline = time.monotonic() + JOIN_S
        while missing:
            log(f"waiting for rank {', '.join(map(str, sorted(missing)))} of {count} at {master}")
            listener.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection, peer = listener.accept()
            except TimeoutError:
                raise StartError(f"rank {min(missing)} did not join in {JOIN_S:g} s") from None
            rank = _joined(connection)
            if rank not in missing:
                connection.close()
                continue
            missing.remove(rank)
            log(f"rank {rank} joined from {peer[0]}")
            threading.Thread(target=_watch, args=(connection, rank), daemon=True).start()


def _joined(connection: socket.socket) -> int:
    connection.settimeout(5)
    try:
        word, _, number = connection.recv(64).decode("ascii", "replace").strip().partition(" ")
    except OSError:
        return -1
    return int(number) if word == "join" and number.isdecimal() else -1


def _watch(connection: socket.socket, rank: int) -> None:
    """End this process when a rank is gone: what is left of a split model can answer nothing."""
    _wait_closed(connection)
    log(f"error: rank {rank} is gone")
    os._exit(1)


def _wait_closed(connection: socket.socket) -> None:
    connection.settimeout(None)
    # A peer whose power was cut says nothing: the kernel must ask.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 8),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    try:
        while connection.recv(64):
            pass
    except OSError:
        return


def follow(master: str, rank: int) -> int:
    """Join rank 0 and stay until it is gone or a signal comes; return the exit code.

    Raises:
        StartError: rank 0 cannot be reached in time.
    """
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    log(f"rank {rank} waits for rank 0 at {master}")
    address = endpoint(master)
    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            connection = socket.create_connection(address, timeout=5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise StartError(f"rank 0 at {master} cannot be reached: {error}") from error
            time.sleep(RETRY_S)
    with connection:
        connection.sendall(f"join {rank}\n".encode())
        log(f"rank {rank} joined")
        _wait_closed(connection)
    log("error: rank 0 is gone")
    return 1


def _end(number: int, _frame: FrameType | None) -> None:
    log(f"stopped by {signal.Signals(number).name}")
    sys.exit(0)
