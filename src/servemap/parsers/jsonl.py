"""JSON lines as written by a program that may have been killed in the middle of a line."""

from pathlib import Path
from typing import Any, NamedTuple

from servemap.model.files import parse_json, read_bytes
from servemap.parsers.jsonvalues import DECODER
from servemap.parsers.records import Skipped


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
    lines: list[JsonLine] = []
    skipped: list[Skipped] = []
    newlines = data.count(b"\n")
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            value = parse_json(raw, DECODER)
        except ValueError:
            reason = "not JSON" if number <= newlines else "truncated last line"
            skipped.append(Skipped(number, reason))
            continue
        if isinstance(value, dict):
            lines.append(JsonLine(number, value))
        else:
            skipped.append(Skipped(number, "not a JSON object"))
    return JsonLines(lines, skipped)


def read_jsonl(path: Path) -> JsonLines:
    """Read `path`; OSError where it cannot be read."""
    return parse_jsonl(read_bytes(path))
