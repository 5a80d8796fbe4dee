"""JSON documents as a tool wrote them: with other text around them, or cut in the middle."""

import json
import re
from typing import Any, NamedTuple

from servemap.model.errors import ParseError
from servemap.model.files import parse_json
from servemap.parsers.jsonvalues import DECODER
from servemap.parsers.records import Skipped

_CUT = "cut from here on"


class Document(NamedTuple):
    """The value of a document, and what of the text was left out."""

    value: Any
    skipped: list[Skipped]

    @property
    def is_cut(self) -> bool:
        """Whether the text ended before the document did."""
        return any(piece.reason == _CUT for piece in self.skipped)


def read_document(kind: str, text: str) -> Document:
    """Return the JSON value in `text`, which begins at the first line that opens one.

    Of a document that ends too early the closed values are kept. Numbers that are none are None.

    Raises:
        ParseError: there is no JSON object or list, or it is broken before its end.
    """
    start = _start(text)
    if start is None:
        raise ParseError(f"this is no JSON of {kind}", kind, "give the tool's JSON output")
    skipped = [Skipped(1, "text before the document")] if text[:start].strip() else []
    try:
        value, end = DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ParseError("nested too deeply", kind, "give the tool's output as it is") from error
    except ValueError as error:
        stack, safe, was_open = _scan(text, start)
        if not stack:
            at = error.lineno if isinstance(error, json.JSONDecodeError) else 1
            raise ParseError(
                f"not JSON: {error}", f"{kind}, line {at}", "give the tool's output as it is"
            ) from error
        closers = "".join("}" if opened == "{" else "]" for opened in reversed(was_open))
        try:
            value = parse_json(text[start:safe] + closers, DECODER)
        except ValueError as cut:
            raise ParseError(
                f"not JSON: {error}",
                f"{kind}, line {text.count(chr(10)) + 1}",
                "repeat the recording",
            ) from cut
        skipped.append(Skipped(text.count("\n", 0, safe) + 1, _CUT))
        return Document(value, skipped)
    if text[end:].strip():
        skipped.append(Skipped(text.count("\n", 0, end) + 1, "text behind the document"))
    return Document(value, skipped)


def _start(text: str) -> int | None:
    """Return where the first line begins that opens an object or a list."""
    at = 0
    for line in text.split("\n"):
        inner = line.lstrip()
        if inner[:1] in ("{", "["):
            return at + len(line) - len(inner)
        at += len(line) + 1
    return None


def _scan(text: str, start: int) -> tuple[list[str], int, list[str]]:
    """Return what is open at the end of a text, the last safe place to cut it, what is open there.

    A safe place is behind a closed value.
    """
    stack: list[str] = []
    safe, was_open = start, list[str]()
    quoted = False
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif token in "{[":
            stack.append(token)
        elif token in "}]":
            if not stack:
                break
            stack.pop()
        if len(stack) <= _DEEPEST and token != '"':
            safe, was_open = match.start() if token == "," else match.end(), stack.copy()
        if not stack:
            break
    return stack, safe, was_open


# An escaped character is a token, so that an escaped quote is none.
_TOKEN = re.compile(r'\\.|["{}\[\],]', re.DOTALL)
# Deeper documents are none of these tools'; the bound keeps a scan linear.
_DEEPEST = 40
