"""Lines of requests.jsonl as fields and event arrays, without a Python object for each event.

A hundred thousand answers are 20 million times of arrival. `msgspec` finds the fields of a line and
leaves the two long lists as text, which numpy reads. A line that is not as the load client writes
it (a hole in a list, a number that is none) is read value by value instead, with the same outcome.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from servemap.model.files import regular
from servemap.onnode.checked import MOST_TOKENS
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Skipped
from servemap.parsers.values import integer, mapping, sequence, text

Ints = NDArray[np.int64]

NO_TIME = np.iinfo(np.int64).min
NO_COUNT = -1
# The largest integer is also what a text of more digits is read as.
_TOO_LARGE = np.iinfo(np.int64).max
_PLAIN = b"0123456789,[]"
_PLAIN_OR_NULL = _PLAIN + b"nul"
_NO_COUNTS = b"null"


_Int = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)] | None
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] | None


class Usage(msgspec.Struct):
    """The server's own counts, None where it gave none."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    cached_tokens: _Count = None
    reasoning_tokens: _Count = None


class Fields(msgspec.Struct):
    """What a line says of a request beside its events, None where that is missing or damaged."""

    id: str | None = None
    segment: str | None = None
    stream: str | None = None
    warmup: bool | None = None
    isl: _Int = None
    osl: _Int = None
    scheduled_ns: _Int = None
    sent_ns: _Int = None
    last_ns: _Int = None
    status: str | None = None
    error: Any = None
    http_status: _Int = None
    attempts: _Int = None
    usage: Usage | None = None


class Events(NamedTuple):
    """Events of one answer: arrival (NO_TIME where missing), kind letter, cumulative count.

    `counts` is None where no event carried one, else NO_COUNT stands for a missing one.
    """

    t_ns: Ints
    kinds: bytes
    counts: Ints | None


class RawRequest(NamedTuple):
    """One line: its number (1-based), fields and events."""

    line: int
    fields: Fields
    events: Events


_WHOLE = ("isl", "osl", "scheduled_ns", "sent_ns", "last_ns", "http_status", "attempts")


class _Line(Fields):
    kinds: str = ""
    t_ns: msgspec.Raw = msgspec.Raw(b"[]")
    tokens: msgspec.Raw = msgspec.Raw(_NO_COUNTS)


_decode = msgspec.json.Decoder(_Line).decode


def read_raw_requests(path: Path, skipped: list[Skipped]) -> Iterator[RawRequest]:
    """Yield every whole line of requests.jsonl; what is none is added to `skipped`.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb", opener=regular) as handle:
        for number, line in enumerate(handle, start=1):
            if not line.strip():
                continue
            try:
                found = _decode(line)
            except (msgspec.MsgspecError, RecursionError):
                record = _record(number, line, skipped)
                if record is not None:
                    yield of_record(JsonLine(number, record))
                continue
            yield RawRequest(number, found, _events(found))


def of_record(line: JsonLine) -> RawRequest:
    """Return a request from its decoded record; a value that is not what it must be is missing."""
    value = line.value
    usage = mapping(value.get("usage"))
    whole = {name: integer(value.get(name)) for name in _WHOLE}
    fields = Fields(
        id=text(value.get("id")),
        segment=text(value.get("segment")),
        stream=text(value.get("stream")),
        warmup=value.get("warmup") is True,
        status=text(value.get("status")),
        error=value.get("error"),
        usage=Usage(*(_count(usage.get(name)) for name in Usage.__struct_fields__)),
        **whole,
    )
    events = _loose(value.get("t_ns"), value.get("kinds"), value.get("tokens"))
    return RawRequest(line.line, fields, events)


def _count(value: Any) -> int | None:
    count = integer(value)
    return count if count is not None and 0 <= count <= MOST_TOKENS else None


def _record(number: int, line: bytes, skipped: list[Skipped]) -> dict[str, Any] | None:
    """Return the object of a line that msgspec refuses: another type, NaN, no JSON at all."""
    try:
        value = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        whole = line.endswith(b"\n")
        skipped.append(Skipped(number, "not JSON" if whole else "truncated last line"))
        return None
    if not isinstance(value, dict):
        skipped.append(Skipped(number, "not a JSON object"))
        return None
    return value


def _events(line: _Line) -> Events:
    times, counts = bytes(line.t_ns), bytes(line.tokens)
    plain = not times.translate(None, _PLAIN) and not counts.translate(None, _PLAIN_OR_NULL)
    if plain and line.kinds.isascii():
        t_ns = _integers(times)
        t_ns[t_ns == _TOO_LARGE] = NO_TIME
        told = _counts(counts)
        if t_ns.size == len(line.kinds) and (told is None or told.size == t_ns.size):
            return Events(t_ns, line.kinds.encode("ascii"), told)
    return _loose(json.loads(times), line.kinds, json.loads(counts))


@lru_cache(maxsize=64)
def _counts(array: bytes) -> Ints | None:
    """Return cumulative counts; answers of one length often have the same, so they are kept."""
    if array == _NO_COUNTS:
        return None
    counts = _integers(array.replace(b"null", b"-1"))
    counts[counts > MOST_TOKENS] = NO_COUNT
    counts.flags.writeable = False
    return counts


def _integers(array: bytes) -> Ints:
    """Return the numbers of a JSON list that holds only whole ones."""
    inner = array[1:-1]
    return np.fromstring(inner, np.int64, sep=",") if inner else np.empty(0, np.int64)


def _loose(t_ns: Any, kinds: Any, tokens: Any) -> Events:
    """Return events of any values: what is no time, kind or count is missing.

    Times and kinds go in pairs; of the longer list the rest is left out.
    """
    letters = (text(kinds) or "").encode("ascii", "replace")
    times = [integer(t) for t in sequence(t_ns)[: len(letters)]]
    letters = letters[: len(times)]
    counts = [integer(n) for n in sequence(tokens)[: len(times)]]
    told = [NO_COUNT if n is None or n > MOST_TOKENS else max(n, 0) for n in counts]
    told += [NO_COUNT] * (len(times) - len(told))
    return Events(
        np.array([NO_TIME if t is None else t for t in times], np.int64),
        letters,
        np.array(told, np.int64) if any(n != NO_COUNT for n in told) else None,
    )


def error_text(value: Any) -> str | None:
    """Return a record's error as `class: message`; None where there is none."""
    if value is None:
        return None
    fields = mapping(value)
    name, message = text(fields.get("class")), text(fields.get("message"))
    return ": ".join(part for part in (name or "unknown", message) if part)
