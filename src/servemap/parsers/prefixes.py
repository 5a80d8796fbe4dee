"""What log drivers and launchers put before every line of a program's output."""

import json
import re
from typing import NamedTuple

from servemap.model.errors import ParseError

# RFC 3339, as `docker logs -t` and `kubectl logs --timestamps` write it; CRI adds the stream and
# whether the line is whole (kubernetes' cri-api, "Log Format"), syslog and `ts` write the month.
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
    r"(?: (?:stdout|stderr) [FP])?(?: |$)"
    r"|\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\](?: |$)"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"
    r"(?: [\w.-]{1,64} [\w./@-]{1,64}\[\d{1,10}\]:)?(?: |$)"
)
# kubectl --prefix, docker compose, mpirun --tag-output, srun --label.
_LABEL = re.compile(
    r"\[(pod/[\w./-]{1,200})\](?: |$)|([A-Za-z][\w.-]{0,80}) {1,40}\|(?: |$)"
    r"|\[(\d{1,9},\d{1,7})\]<std(?:out|err|diag)>: ?|(\d{1,6}):(?: |$)"
)
# Looked at before all lines are: most texts have no prefix.
_FIRST_LINES = 3


class Unprefixed(NamedTuple):
    """A text without prefixes, and the labels that its lines had, in order of appearance."""

    text: str
    labels: tuple[str, ...]


def without_log_driver(text: str) -> str:
    """Return a text without the times, or the JSON, that a log driver put around every line."""
    if text.startswith('{"log":'):
        return _unpacked(text)
    return _stripped(text, _TIME) or text


def without_labels(text: str) -> Unprefixed:
    """Return a text without what a launcher put before every line to name the writer."""
    stripped = _stripped(text, _LABEL)
    if stripped is None:
        return Unprefixed(text, ())
    labels: dict[str, None] = {}
    for line in text.split("\n"):
        if match := _LABEL.match(line):
            labels[next(filter(None, match.groups()))] = None
    return Unprefixed(stripped, tuple(labels))


def one_writer(kind: str, text: str) -> str:
    """Return a text without launchers' labels, all of which name one writer.

    Raises:
        ParseError: they name several, whose tables cannot be told apart once they are mixed.
    """
    found = without_labels(text)
    if len(found.labels) > 1:
        named = ", ".join(found.labels[:4])
        raise ParseError(
            f"lines of {len(found.labels)} writers are mixed: {named}",
            kind,
            f"give the lines of one at a time, those that begin as {text.lstrip()[:20]!r} does",
        )
    return found.text


def _stripped(text: str, prefix: re.Pattern[str]) -> str | None:
    """Return a text without a prefix that all its lines have; None where one has it not."""
    lines = text.split("\n")
    first = [line for line in lines[: _FIRST_LINES + 1] if line][:_FIRST_LINES]
    if not first or not all(map(prefix.match, first[:-1] or first)):
        return None
    found: list[str] = []
    for number, line in enumerate(lines, start=1):
        match = prefix.match(line)
        # Of a last line its prefix itself may be cut.
        if match is None and line and number < len(lines):
            return None
        found.append(line[match.end() :] if match else line if number < len(lines) else "")
    return "\n".join(found)


def _unpacked(text: str) -> str:
    """Return what the records of docker's driver json-file hold, or the text if a line is none."""
    parts: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("log"), str):
            if number == len(lines):
                # A last record that was cut.
                break
            return text
        parts.append(record["log"])
    # An escape may be half a character.
    return "".join(parts).encode("utf-8", "replace").decode("utf-8")
