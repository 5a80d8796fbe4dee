"""JSON lines as written by a program that may have been killed in the middle of a line."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from servemap.model.files import parse_json, regular
from servemap.parsers.jsonvalues import DECODER
from servemap.parsers.records import Skipped

_decode = msgspec.json.Decoder().decode


class JsonLine(NamedTuple):
    """One whole line: its number (1-based) and the object on it."""

    line: int
    value: dict[str, Any]


class JsonLines(NamedTuple):
    """The whole lines of a file in order, and the lines that were left out."""

    lines: list[JsonLine]
    skipped: list[Skipped]


def parse_jsonl(data: bytes) -> JsonLines:
    """Return every line of `data` that is one JSON object; any other non-blank line is skipped.

    The last line needs no newline: an object that closes is whole.
    """
    skipped: list[Skipped] = []
    return JsonLines(list(json_lines(BytesIO(data), skipped)), skipped)


def stream_jsonl(path: Path, skipped: list[Skipped]) -> Iterator[JsonLine]:
    """Yield the same lines of a file one by one; OSError where it cannot be read.

    Args:
        path: of a regular file.
        skipped: takes the lines that are left out.
    """
    with open(path, "rb", opener=regular) as handle:
        yield from json_lines(handle, skipped)


def json_lines(raws: Iterable[bytes], skipped: list[Skipped]) -> Iterator[JsonLine]:
    """Yield the objects of lines with their ends; add to `skipped` what is none."""
    for number, raw in enumerate(raws, start=1):
        try:
            value = _decoded(raw)
        except (ValueError, RecursionError):
            if raw.strip():
                reason = "not JSON" if raw.endswith(b"\n") else "truncated last line"
                skipped.append(Skipped(number, reason))
            continue
        if isinstance(value, dict):
            yield JsonLine(number, value)
        else:
            skipped.append(Skipped(number, "not a JSON object"))


def _decoded(raw: bytes) -> Any:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # It refuses more than the standard library does: NaN, half characters, numbers too large.
        return parse_json(raw, DECODER)
