"""The streams of a program on this machine: fed and read together, and no more than is bearable."""

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO

from servemap.nodes.base import MAX_OUTPUT_BYTES, Exchange

EXCHANGE_S = 20.0
LINE_BYTES = 1 << 20
READ_BYTES = 1 << 16
SEND_BYTES = 1 << 12


class TooMuchError(Exception):
    """A program prints more than MAX_OUTPUT_BYTES."""


def converse(
    process: "subprocess.Popen[bytes]", data: bytes, timeout_s: float
) -> tuple[bytes, bytes]:
    """Send `data` as all of the input and return what a program wrote to stdout and stderr.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
        TooMuchError: it prints too much.
    """
    deadline = time.monotonic() + timeout_s
    assert process.stdout is not None and process.stderr is not None
    said: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    rest = memoryview(data)
    with selectors.DefaultSelector() as streams:
        for stream in said:
            streams.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            streams.register(process.stdin, selectors.EVENT_WRITE)
        while streams.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            for key, _events in streams.select(left_s):
                if key.fileobj is process.stdin:
                    rest = _send(key.fd, rest)
                    ended = not rest
                else:
                    ended = _take(key.fd, next(v for k, v in said.items() if k is key.fileobj))
                if ended:
                    streams.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
    process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(said[process.stdout]), bytes(said[process.stderr])


def ask(process: "subprocess.Popen[bytes]", lines: Sequence[str]) -> list[Exchange]:
    """Ask a program line by line and end it.

    Raises:
        OSError: it ended before.
        subprocess.TimeoutExpired: it does not end by itself.
    """
    assert process.stdin is not None and process.stdout is not None
    watch = threading.Timer(EXCHANGE_S, process.kill)
    watch.start()
    found = []
    try:
        for line in lines:
            sent = time.time_ns()
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline(LINE_BYTES)
            found.append(Exchange(sent, answer.decode(errors="replace").strip(), time.time_ns()))
        process.stdin.close()
        process.wait(EXCHANGE_S)
    finally:
        watch.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    return found


def _send(descriptor: int, rest: memoryview) -> memoryview:
    """Return what is still to be sent; nothing where nobody reads any more."""
    try:
        return rest[os.write(descriptor, rest[:SEND_BYTES]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def _take(descriptor: int, said: bytearray) -> bool:
    """Read what there is; return whether that was all."""
    piece = os.read(descriptor, READ_BYTES)
    said += piece
    if len(said) > MAX_OUTPUT_BYTES:
        raise TooMuchError
    return not piece
