"""Server-sent events (WHATWG HTML, 9.2): from body pieces with times to events with times."""

import re
from typing import Iterator, List, NamedTuple, Tuple

_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"\r\n|\n|\r")
_FIELD = re.compile(rb"(?:data|event|id|retry)(?::|\Z)|error:|:")

STRAY = "\n"
"""Name of an event that is none: its data is a line that is no field (no server can send it)."""


class Event(NamedTuple):
    """One event: when the bytes that complete it were read, its name and its data."""

    t_ns: int
    name: str
    data: str


def parse_events(pieces: List[bytes], times: List[int], complete: bool) -> List[Event]:
    """Split a body into events; how it was cut into pieces changes times only.

    Args:
        pieces: the body as it arrived; a frame or a character may be cut anywhere.
        times: when each piece was read, ns.
        complete: the response ended as it should; what follows the last blank line is then an
            event too, as some servers leave the final blank line out.

    Returns:
        The events; a block with a line that is neither field nor comment is one named `STRAY`.
    """
    body = b"".join(pieces)
    events: List[Event] = []
    piece, reached = 0, len(pieces[0]) if pieces else 0
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for stop, end in _blanks(body, start):
        while reached < end:
            piece += 1
            reached += len(pieces[piece])
        block = body[start:stop]
        if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
            # Nearly all events: one line of data.
            events.append(Event(times[piece], "", block[6:].decode("utf-8", "replace")))
        else:
            _append(events, times[piece], block)
        start = end
    if complete and start < len(body):
        _append(events, times[-1], body[start:])
    return events


def _blanks(body: bytes, start: int) -> Iterator[Tuple[int, int]]:
    """Give the places of the blank lines: where the block before ends, where the next begins."""
    if b"\r" in body:
        for match in _BLANK.finditer(body, start):
            yield match.span()
        return
    stop = body.find(b"\n\n", start)
    while stop >= 0:
        yield stop, stop + 2
        stop = body.find(b"\n\n", stop + 2)


def _append(events: List[Event], t_ns: int, block: bytes) -> None:
    name = ""
    data: List[bytes] = []
    for line in _LINE.split(block):
        if line and not _FIELD.match(line):
            events.append(Event(t_ns, STRAY, line.decode("utf-8", "replace")))
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"error":
            # llama.cpp has sent its errors as a field of this name.
            name = "error"
            data.append(value)
    if data:
        events.append(Event(t_ns, name, b"\n".join(data).decode("utf-8", "replace")))
