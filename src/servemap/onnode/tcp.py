"""`tcp-serve` and `tcp-probe`: round-trip time and one-way bandwidth between two nodes.

On a connection the first byte names what follows: `E` echoes every byte, `S` swallows bytes until
the sender closes its side, then answers with their number (8 bytes, big endian), so that the
bandwidth is that of bytes which have arrived, not of bytes put into a buffer.
"""

import argparse
import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any, Dict, List

from .files import write_json_atomic

ECHO = b"E"
SINK = b"S"
PING_BYTES = 64
CHUNK_BYTES = 256 << 10
CONNECT_S = 5.0
COUNT = struct.Struct(">Q")


def percentile(ordered: List[float], share: float) -> float:
    """Return a percentile of sorted values, linear between the two nearest ranks."""
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summarise_rtt(rtt_us: List[float]) -> Dict[str, Any]:
    """Return `{"p50", "p95", "p99", "max", "n"}` of round trips in microseconds."""
    ordered = sorted(rtt_us)
    return {
        "p50": percentile(ordered, 0.50),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
        "max": ordered[-1],
        "n": len(ordered),
    }


def answer(connection: socket.socket) -> None:
    """Serve one connection to its end; OSError when the peer stalls or is lost."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mode = connection.recv(1)
    buffer = bytearray(CHUNK_BYTES)
    total = 0
    while mode in (ECHO, SINK):
        count = connection.recv_into(buffer)
        if not count:
            break
        total += count
        if mode == ECHO:
            connection.sendall(memoryview(buffer)[:count])
    if mode == SINK:
        connection.sendall(COUNT.pack(total))


def serve(bind: str, port: int, ready: str, idle_exit_s: float) -> None:
    """Answer one probe after the other until none has come for `idle_exit_s`."""
    family, _kind, _proto, _name, address = socket.getaddrinfo(
        bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(8)
        write_json_atomic(
            ready, {"host": bind, "port": listener.getsockname()[1], "pid": os.getpid()}
        )
        while select.select([listener], [], [], idle_exit_s)[0]:
            connection, _peer = listener.accept()
            with connection:
                connection.settimeout(idle_exit_s)
                try:
                    answer(connection)
                except OSError as error:
                    print("tcp-serve: a probe was lost: %s" % error, file=sys.stderr)


def connect(host: str, port: int, mode: bytes) -> socket.socket:
    """Open a connection for `mode`; OSError when nobody answers."""
    connection = socket.create_connection((host, port), timeout=CONNECT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(mode)
    return connection


def receive(connection: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes; ConnectionError when the peer ends before."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def measure_rtt(host: str, port: int, pings: int, seconds: float) -> List[float]:
    """Return up to `pings` round trips of 64 bytes in us, one after the other, in `seconds`."""
    message = bytes(PING_BYTES)
    found: List[float] = []
    with connect(host, port, ECHO) as connection:
        connection.settimeout(seconds + CONNECT_S)
        deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
        # The first one pays for the server's start on this connection and is not counted.
        for number in range(pings + 1):
            started_ns = time.monotonic_ns()
            connection.sendall(message)
            receive(connection, PING_BYTES)
            ended_ns = time.monotonic_ns()
            if number:
                found.append((ended_ns - started_ns) / 1e3)
            if ended_ns > deadline_ns and found:
                break
    return found


def measure_bandwidth(host: str, port: int, count: int, seconds: float) -> Dict[str, Any]:
    """Send `count` bytes, or what fits in `seconds`; return bytes, seconds and their ratio."""
    chunk = memoryview(bytes(CHUNK_BYTES))
    sent = 0
    with connect(host, port, SINK) as connection:
        # What is in the buffers at the deadline has yet to arrive over a slow link.
        connection.settimeout(2 * seconds + CONNECT_S)
        started_ns = time.monotonic_ns()
        deadline_ns = started_ns + int(seconds * 1e9)
        while sent < count and time.monotonic_ns() < deadline_ns:
            sent += connection.send(chunk[: count - sent])
        connection.shutdown(socket.SHUT_WR)
        (arrived,) = COUNT.unpack(receive(connection, COUNT.size))
        taken_s = (time.monotonic_ns() - started_ns) / 1e9
    if arrived != sent:
        raise ConnectionError("%d of %d bytes arrived" % (arrived, sent))
    return {"bandwidth_bytes_per_s": sent / taken_s, "bytes": sent, "seconds": taken_s}


def probe(host: str, port: int, pings: int, count: int, seconds: float) -> Dict[str, Any]:
    """Return the result of a probe; on failure `error` says why and what is missing is null."""
    result: Dict[str, Any] = {
        "schema": 1,
        "host": host,
        "port": port,
        "rtt_us": None,
        "bandwidth_bytes_per_s": None,
        "bytes": None,
        "seconds": None,
        "error": None,
    }
    try:
        result["rtt_us"] = summarise_rtt(measure_rtt(host, port, pings, seconds))
        result.update(measure_bandwidth(host, port, count, seconds))
    except OSError as error:
        result["error"] = "%s: %s" % (type(error).__name__, error)
    return result


def positive(text: str) -> float:
    """Parse a number above 0 for argparse."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("%s is not a positive number" % text)
    return value


def positive_int(text: str) -> int:
    """Parse a whole number above 0 for argparse."""
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("%s is not a positive number" % text)
    return value


def serve_main(argv: List[str]) -> int:
    """Run `tcp-serve`; 1 when it cannot listen."""
    parser = argparse.ArgumentParser(prog="tcp-serve")
    parser.add_argument("--bind", required=True, help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--ready", required=True, help="file that tells the port, once it listens")
    parser.add_argument("--idle-exit", type=positive, default=60.0, help="seconds")
    arguments = parser.parse_args(argv)
    try:
        serve(arguments.bind, arguments.port, arguments.ready, arguments.idle_exit)
    except OSError as error:
        print("tcp-serve: cannot serve on %s: %s" % (arguments.bind, error), file=sys.stderr)
        return 1
    return 0


def probe_main(argv: List[str]) -> int:
    """Run `tcp-probe` and print its JSON; 1 when the probe failed."""
    parser = argparse.ArgumentParser(prog="tcp-probe")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pings", type=positive_int, default=1000)
    parser.add_argument("--bytes", type=positive_int, default=1 << 30)
    parser.add_argument("--seconds", type=positive, default=3.0, help="limit of each half")
    arguments = parser.parse_args(argv)
    result = probe(
        arguments.host, arguments.port, arguments.pings, arguments.bytes, arguments.seconds
    )
    print(json.dumps(result))
    if result["error"]:
        print("tcp-probe: %s" % result["error"], file=sys.stderr)
        return 1
    return 0
