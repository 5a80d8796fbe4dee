"""Events out of the text of a Chrome trace, piece by piece, whatever its layout.

The format: "Trace Event Format", an object with `traceEvents` or a bare array of events.
A piece is cut between two events and decoded at once. Where that fails (the array ends, a number
is NaN, a cut fell into a string) the piece is read event by event with the standard library.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from servemap.model.files import parse_json
from servemap.parsers.traces.event_types import Event, interval_decoder
from servemap.parsers.traces.halves import Begin, End, Halves

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE = re.compile(rb"\s*\[")
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_BETWEEN_TEXT = re.compile(r"\}\s*,\s*(?=\{)")
_FIRST = re.compile(rb"[^\s,]")
_SPACE = re.compile(r"[\s,]*")

_LARGEST_HEAD = 64 << 20
"""Bytes before the events; more than that is another kind of file."""

_LARGEST_EVENT = 32 << 20
"""Bytes without one whole event after which the rest is given up."""

_CUTS_TRIED = 3

_NOTHING = " \t\r\n\0"
"""What may stand behind a document: blanks, and what a copy tool filled a block with."""


class Batch(NamedTuple):
    """Events that were decoded together, and the JSON array that they came from."""

    events: list[Event]
    text: bytes


_DECODE = interval_decoder(Event)
_DECODE_ONE = msgspec.json.Decoder(Event)
_DECODE_HALF = msgspec.json.Decoder(Begin | End)
_HALVES = frozenset((Begin, End))


def _is_cut(error: json.JSONDecodeError, length: int) -> bool:
    """Whether a text did not read because it ends; a literal or an escape is at most 6 long."""
    return error.msg.startswith("Unterminated string") or error.pos >= length - 6


def _repaired(value: Any) -> Any:
    """Return an event without what would cost it: its place and time count, whatever else is odd.

    A correlation that is text becomes a number, or none where it is no number.
    """
    if not isinstance(value, dict):
        return value
    args = value.get("args")
    args = args if isinstance(args, dict) else {}
    correlation = args.get("correlation", -1)
    if isinstance(correlation, bool) or not isinstance(correlation, int):
        digits = str(correlation)
        correlation = int(digits) if digits.isdecimal() and len(digits) < 19 else -1
    odd = {
        name: str(value[name]) for name in ("pid", "tid")
        if name in value and not isinstance(value[name], int | str)
    }  # fmt: skip
    return {**value, **odd, "args": {**args, "correlation": correlation}}


class EventReader:
    """An iterator over batches of events; what was met is known afterwards.

    Attributes:
        head: the top level of the file beside its events; empty if it cannot be read.
        found: whether there was an array of events at all.
        whole: whether that array ended.
        lost_bytes: bytes of events that could not be read.
        followed: whether something stands behind the whole trace, such as another one.
        skipped: events that are no events, by reason.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.head: dict[str, Any] = {}
        self.found = False
        self.whole = False
        self.lost_bytes = 0
        self.followed = False
        self.skipped: Counter[str] = Counter()
        self._halves = Halves()

    def __iter__(self) -> Iterator[Batch]:
        pieces = iter(self._pieces)
        before, rest, bare = self._find_array(pieces)
        if not self.found:
            return
        tail: list[bytes] = []
        wanted = behind = 0
        for piece in pieces:
            if self.whole:
                tail.append(piece)
                behind += len(piece)
                if behind > _LARGEST_HEAD:
                    self.followed = True
                    break
                continue
            if len(rest) + len(piece) < wanted:
                rest += piece
                continue
            length = len(rest) + len(piece)
            batch, rest = self._decode(rest + piece)
            yield from self._with_pairs(batch)
            # A huge event is not looked at again before twice as much of it is there.
            wanted = 0 if len(rest) < length else 2 * length
            if len(rest) > _LARGEST_EVENT:
                break
        if not self.whole:
            batch, rest = self._decode_slowly(rest)
            yield from self._with_pairs(batch)
        self._halves.close()
        self.skipped += self._halves.skipped
        if not self.whole:
            self.lost_bytes += len(rest.strip())
        elif bare:
            rest = b"".join([rest, *tail])
            self.followed = self.followed or bool(rest.strip(_NOTHING.encode()))
        else:
            self._read_head(before + b"]" + rest + b"".join(tail))
        if not self.head and not bare:
            self._read_head(before + b"]}")

    def _with_pairs(self, batch: Batch) -> Iterator[Batch]:
        """Yield a batch, and the intervals whose other half was in it."""
        if batch.events:
            yield batch
        if text := self._halves.take():
            pairs, _ = self._decode_slowly(text[1:-1])
            yield pairs

    def _find_array(self, pieces: Iterator[bytes]) -> tuple[bytes, bytes, bool]:
        """Return the text up to and with the bracket, that after it, and whether it is bare."""
        text = b""
        for piece in pieces:
            text = (text + piece).removeprefix(codecs.BOM_UTF8)
            if bare := _BARE.match(text):
                self.found = True
                return b"", text[bare.end() :], True
            if array := _ARRAY.search(text):
                self.found = True
                return text[: array.end()], text[array.end() :], False
            if len(text) > _LARGEST_HEAD or not text.lstrip().startswith(b"{"):
                break
        return text, b"", False

    def _decode(self, text: bytes) -> tuple[Batch, bytes]:
        """Return the events of `text` up to its last whole one, and what is left."""
        end = len(text)
        first = _FIRST.search(text)
        begin = first.start() if first else 0
        for _ in range(_CUTS_TRIED):
            cut = text.rfind(b"},", 0, end)
            while cut >= 0 and not _BETWEEN.match(text, cut):
                cut = text.rfind(b"},", 0, cut)
            if cut < 0:
                break
            part = b"".join((b"[", memoryview(text)[begin : cut + 1], b"]"))
            try:
                events = _DECODE.decode(part)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                end = cut
                continue
            timed = [event for event in events if type(event) is Event]
            if len(timed) < len(events):
                for half in [event for event in events if type(event) in _HALVES]:
                    self._halves.add(half)
            return Batch(timed, part), text[cut + 2 :]
        return self._decode_slowly(text)

    def _decode_slowly(self, data: bytes) -> tuple[Batch, bytes]:
        text = data.decode("utf-8", "surrogateescape")
        decoder = json.JSONDecoder()
        events: list[Event] = []
        texts: list[bytes] = []
        at, astray = 0, False
        while True:
            space = _SPACE.match(text, at)
            at = space.end() if space else at
            if text.startswith("]", at) and not astray:
                self.whole = True
                at += 1
                break
            try:
                value, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, json.JSONDecodeError) and _is_cut(error, len(text)):
                    break
                # What is between here and the next event is lost; it may be a part of one.
                after = _BETWEEN_TEXT.search(text, at)
                if after is None:
                    break
                self.skipped["not JSON"] += 1
                at, astray = after.end(), True
                continue
            astray = astray and not (isinstance(value, dict) and "ph" in value)
            one = text[at:end].encode("utf-8", "surrogateescape")
            at = end
            if (vetted := self._vet(value, one)) is not None:
                events.append(vetted[0])
                texts.append(vetted[1])
        joined = b"[" + b",".join(texts) + b"]"
        return Batch(events, joined), text[at:].encode("utf-8", "surrogateescape")

    def _vet(self, value: Any, text: bytes) -> tuple[Event, bytes] | None:
        """Return an interval and its JSON, or None; where it is not well formed, count why."""
        if not isinstance(value, dict):
            self.skipped["not an event"] += 1
            return None
        if value.get("ph") in ("B", "E"):
            self._take_half(text)
        if value.get("ph") != "X":
            return None
        try:
            return _DECODE_ONE.decode(text), text
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # numbers such as NaN, and bytes that are no UTF-8, can be had nevertheless
        try:
            event = msgspec.convert(_repaired(parse_json(text.decode("utf-8", "replace"))), Event)
            return event, msgspec.json.encode(event)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$.")
            self.skipped[f"{where.rstrip('`') or 'an event'}: {reason}"] += 1
        except (ValueError, RecursionError):
            self.skipped["not UTF-8"] += 1
        return None

    def _take_half(self, text: bytes) -> None:
        try:
            self._halves.add(_DECODE_HALF.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.skipped["a begin or end that is not well formed"] += 1

    def _read_head(self, text: bytes) -> None:
        array = _ARRAY.search(text)
        plain = text.decode("utf-8", "replace").lstrip()
        try:
            _, end = json.JSONDecoder().raw_decode(plain)
            head = parse_json(plain[:end])
        except (ValueError, RecursionError):
            return
        self.followed = self.followed or bool(plain[end:].strip(_NOTHING))
        if isinstance(head, dict) and array:
            head.pop("traceEvents", None)
            self.head = head
