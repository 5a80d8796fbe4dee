"""HTTP/1.1 response framing (RFC 9112): where the body is and where the response ends."""

import re
import zlib
from array import array
from typing import Dict, List, Optional, Tuple

MAX_HEAD = 65536
MAX_LINE = 4096
MAX_DIGITS = 15

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |$)")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}(?=[ \t]*(?:;|$))")

# Size lines as nearly all servers write them, with the sizes that nearly all events have.
_USUAL = {b"%x\r\n" % size: size for size in range(1, 2048)}

_HEAD, _CHUNKED, _LENGTH, _TO_CLOSE, _DONE = range(5)


class FramingError(Exception):
    """The bytes are no HTTP/1.1 response that this client understands."""


class Response:
    """One response as it arrives: body pieces with the time each was read.

    `feed` skips from frame to frame and copies; nothing is interpreted before the window ends.
    """

    __slots__ = (
        "_head",
        "_left",
        "_line",
        "_mode",
        "_packed",
        "content_type",
        "keep_alive",
        "last_ns",
        "pieces",
        "read_bytes",
        "status",
        "surplus",
        "times",
    )

    def __init__(self) -> None:
        self.status: Optional[int] = None
        self.content_type = ""
        self.keep_alive = False
        self.surplus = False
        self.pieces: List[bytes] = []
        self.times: List[int] = []
        self.last_ns: Optional[int] = None
        self.read_bytes = 0
        self._mode = _HEAD
        self._head = b""
        self._line = b""
        self._left = 0
        self._packed: Optional[Tuple[bytes, "array[int]", "array[int]"]] = None

    def pack(self) -> None:
        """Put the body away in about a twentieth of the memory; for a response that ended."""
        sizes = array("I", map(len, self.pieces))
        self._packed = zlib.compress(b"".join(self.pieces), 1), sizes, array("q", self.times)
        self.pieces, self.times = [], []

    def unpack(self) -> None:
        """Bring back what `pack` put away, if it did."""
        if self._packed is None:
            return
        data, sizes, times = self._packed
        body, start = zlib.decompress(data), 0
        for size in sizes:
            self.pieces.append(body[start : start + size])
            start += size
        self.times = times.tolist()
        self._packed = None

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Take what was read at `now_ns`; True when the response is complete.

        Raises FramingError. Bytes beyond the end set `surplus`: the connection is then unusable.
        """
        self.last_ns = now_ns
        self.read_bytes += len(data)
        if self._mode == _HEAD:
            data = self._take_head(data)
        if self._mode == _CHUNKED:
            return self._take_chunks(data, now_ns)
        if self._mode == _LENGTH:
            if len(data) > self._left:
                self.surplus = True
                data = data[: self._left]
            self._left -= len(data)
            self._keep(data, now_ns)
            if self._left == 0:
                self._mode = _DONE
        elif self._mode == _TO_CLOSE:
            self._keep(data, now_ns)
        elif data:
            self.surplus = True
        return self._mode == _DONE

    def end(self) -> bool:
        """Tell whether the peer's close completes the response."""
        return self._mode in (_TO_CLOSE, _DONE)

    def _keep(self, data: bytes, now_ns: int) -> None:
        if data:
            self.pieces.append(data)
            self.times.append(now_ns)

    def _take_head(self, data: bytes) -> bytes:
        head = self._head + data
        while True:
            end = head.find(b"\r\n\r\n")
            if end < 0:
                if len(head) > MAX_HEAD:
                    raise FramingError("the response's header does not end")
                if not b"HTTP/1.".startswith(head[:7]) and not head.startswith(b"HTTP/1."):
                    raise FramingError(f"not an HTTP/1 response: {head[:40]!r}")
                self._head = head
                return b""
            interim = self._parse_head(head[:end])
            head = head[end + 4 :]
            if not interim:
                self._head = b""
                return head

    def _parse_head(self, head: bytes) -> bool:
        first, *lines = head.split(b"\r\n")
        match = _STATUS.match(first)
        if match is None:
            raise FramingError(f"not an HTTP/1 status line: {first[:40]!r}")
        status = int(match.group(2))
        if status == 101:
            raise FramingError("the server switched protocols")
        if status < 200:
            return True
        headers: Dict[bytes, bytes] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            name = name.lower()
            value = value.strip()
            headers[name] = headers[name] + b"," + value if name in headers else value
        self.status = status
        self.content_type = headers.get(b"content-type", b"").decode("latin-1").lower()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise FramingError("the body is compressed, which was not asked for")
        connection = headers.get(b"connection", b"").lower()
        self.keep_alive = b"close" not in connection and (
            match.group(1) == b"1" or b"keep-alive" in connection
        )
        encoding = headers.get(b"transfer-encoding", b"").lower()
        length = headers.get(b"content-length")
        if encoding.endswith(b"chunked"):
            self._mode = _CHUNKED
        elif status in (204, 304):
            self._mode = _DONE
        elif length is not None and not encoding:
            if not length.isdigit() or len(length) > MAX_DIGITS:
                raise FramingError(f"content-length is {length[:40]!r}")
            self._left = int(length)
            self._mode = _LENGTH
        else:
            self._mode = _TO_CLOSE
            self.keep_alive = False
        return False

    def _take_chunks(self, data: bytes, now_ns: int) -> bool:
        # _left: bytes still due of this chunk with its CRLF; 0 at a size line; -1 in the trailer.
        position, size = 0, len(data)
        if self._left == 0 and not self._line:
            # Most reads bring one whole chunk.
            start = data.find(b"\n", 0, 8) + 1
            if size == start + _USUAL.get(data[:start], size) + 2 and data.endswith(b"\r\n"):
                self.pieces.append(data[start:-2])
                self.times.append(now_ns)
                return False
        while position < size:
            if self._left > 0:
                take = min(self._left, size - position)
                payload = min(take, self._left - 2)
                if payload > 0:
                    self.pieces.append(data[position : position + payload])
                    self.times.append(now_ns)
                else:
                    payload = 0
                pad = data[position + payload : position + take]
                due = 2 - (self._left - payload)
                if pad != b"\r\n"[due : due + len(pad)]:
                    raise FramingError("a chunk does not end where its size says")
                position += take
                self._left -= take
                continue
            end = data.find(b"\n", position)
            if end < 0:
                self._line += data[position:]
                if len(self._line) > MAX_LINE:
                    raise FramingError("a chunk's size line does not end")
                return False
            line = (self._line + data[position:end]).rstrip(b"\r")
            self._line = b""
            position = end + 1
            if self._left < 0:
                if not line:
                    self._mode = _DONE
                    self.surplus = position < size
                    return True
                continue
            match = _SIZE.match(line)
            if match is None:
                raise FramingError(f"a chunk's size is {line[:40]!r}")
            length = int(match.group(), 16)
            self._left = length + 2 if length else -1
        return False
