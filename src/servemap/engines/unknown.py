"""What a log says about a failure that no signature knows: its last errors, its first traceback."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from servemap.engines.failures import log_lines, repeats, shorten

MAX_ERRORS = 5
FRAME_LINES = 400
"""Longest traceback that is followed; lines of other processes may lie between its own."""

_BEGINS = re.compile(r"Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::\s|$)")
_ERROR = re.compile(
    r"\b(ERROR|CRITICAL|FATAL|[Ff]atal|[Ee]rror:|[Pp]anic)\b|\b\w+(Error|Exception)\b(?!\()"
)
_INDENTED = re.compile(r"\]\s{2,}\S|^\s+\S")
_ACCESS = re.compile(r'"(GET|POST|HEAD|PUT|OPTIONS) \S+ HTTP/')


@dataclass(frozen=True)
class Traceback:
    """A Python traceback's end: `exception` with its message, `frame` as FILE:LINE in FUNCTION."""

    line_number: int
    exception: str
    frame: str | None


@dataclass(frozen=True)
class Unknown:
    """The evidence of a log that no signature explains; `last_lines` where it names no error."""

    errors: list[str]
    traceback: Traceback | None
    last_lines: list[str]

    def say(self) -> str:
        """Return the evidence as one line of words."""
        parts = []
        if self.traceback is not None:
            at = f" at {self.traceback.frame}" if self.traceback.frame else ""
            parts.append(f"first traceback: {self.traceback.exception}{at}")
        if self.errors:
            parts.append(f"last errors of its log: {' | '.join(self.errors)}")
        elif self.last_lines:
            parts.append(f"last lines of its log: {' | '.join(self.last_lines)}")
        return "; ".join(parts) or "its log is empty"


def explain_unknown(log_text: str) -> Unknown:
    """Return the last error lines and the first traceback of a log, which may be any text."""
    lines = log_lines(log_text)
    traceback = _first_traceback(lines)
    errors = [shorten(line) for line in lines if _names_error(line)]
    last_unlike = list(dict.fromkeys(reversed(errors)))[:MAX_ERRORS]
    said = [] if errors else [line for line in lines if line.strip()]
    return Unknown(last_unlike[::-1], traceback, [shorten(line) for line in said[-MAX_ERRORS:]])


def _names_error(line: str) -> bool:
    """Whether a line tells of an error itself: no frame of a traceback, no request, no answer."""
    if not _ERROR.search(line) or repeats(line):
        return False
    return not _ACCESS.search(line) and not _INDENTED.search(line)


def _first_traceback(lines: Sequence[str]) -> Traceback | None:
    """Return the first traceback that is whole; the first of a chain is its root."""
    for index, line in enumerate(lines):
        if _BEGINS.search(line):
            found = _end_of(index, lines)
            if found is not None:
                return found
    return None


def _end_of(begin: int, lines: Sequence[str]) -> Traceback | None:
    """Return how the traceback that begins at a line ends.

    A logger may put its own words before each line; then those of other processes, which lie in
    between, begin otherwise.
    """
    before = lines[begin][: lines[begin].index("Traceback (")]
    body = lines[begin + 1 : begin + 1 + FRAME_LINES]
    if before.strip() and any(line.startswith(before) for line in body):
        body = [line[len(before) :] for line in body if line.startswith(before)]
        before = ""
    indent = len(before) if not before.strip() else 0
    frame = None
    for line in body:
        text = line[indent:] if not line[:indent].strip() else line
        found = _FRAME.search(text)
        if found and text[:1].isspace():
            frame = f"{found['file']}:{found['line']}"
            if found["function"]:
                frame += f" in {found['function']}"
        elif frame is not None and _EXCEPTION.match(text):
            return Traceback(begin + 1, shorten(text.strip()), shorten(frame))
    return None
