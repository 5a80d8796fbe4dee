"""Why a server failed, from its log: signatures as data, findings for people."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field, TypeAdapter

from servemap.engines.log_text import without_colours
from servemap.model.base import Model, Slug

FailureClass = Literal[
    "configuration", "memory", "backend", "network", "hang", "dependency", "model", "host",
    "crash", "stopped",
]  # fmt: skip
Role = Literal["cause", "consequence", "stop", "request"]
EngineName = Literal["llamacpp", "vllm", "sglang"]

MAX_CHARACTERS = 300
"""Longest line that is shown; a line may list all arguments of a server."""

_WIDE = 1000
"""Longest line that is searched whole; a longer one is searched state by state."""

_ANSWERED = re.compile(r'HTTP/[\d.]+" 2\d\d\b')
# vllm/entrypoints/serve/utils/request_logger.py (0.32), sglang/srt/utils/request_logger.py (0.5.23)
_REPEATED = re.compile(
    r"\bReceived request \S+: |\bRequest \S+ details: prompt: |\bGenerated response \S"
    r"|\b(?:Receive|Finish): obj="
)
_ORDER: tuple[Role, ...] = ("cause", "consequence", "stop", "request")


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class Signature(Model):
    """One entry of `failures.yaml`, whose head explains the keys."""

    id: Slug
    failure: FailureClass = Field(alias="class")
    role: Role
    engines: tuple[EngineName, ...] = Field((), strict=False)
    patterns: tuple[Pattern, ...] = Field(min_length=1, strict=False)
    also: Pattern | None = None
    after: Pattern | None = None
    unless_before: Pattern | None = None
    unless_after: Pattern | None = None
    process: Literal["alive", "ended"] | None = None
    idle: bool = False
    means: str = Field(min_length=1)
    remedy: str = Field(min_length=1)

    def is_of(self, engine: str | None) -> bool:
        """Whether this engine may write so; None stands for an engine that is not known."""
        return engine is None or not self.engines or engine in self.engines


@dataclass(frozen=True)
class Finding:
    """A signature that a log matched, with the line (counted from 1) as evidence."""

    id: str
    failure: str
    role: Role
    line_number: int
    line: str
    means: str
    remedy: str


@cache
def load_signatures() -> tuple[Signature, ...]:
    """Return the validated table; ids are unique."""
    text = files("servemap.engines").joinpath("failures.yaml").read_text(encoding="utf-8")
    signatures = TypeAdapter(tuple[Signature, ...]).validate_python(yaml.safe_load(text))
    if len({signature.id for signature in signatures}) != len(signatures):
        raise ValueError("failures.yaml: two signatures have the same id")
    return signatures


def log_lines(log_text: str) -> list[str]:
    """Return a log's lines without colours and trailing space.

    Line ends alone count: progress bars return the carriage many times within one line.
    """
    return [without_colours(line).rstrip() for line in log_text.split("\n")]


def shorten(line: str) -> str:
    """Return a line as it is shown: of a progress bar's states the last, and not too long."""
    text = line.strip().rpartition("\r")[2].strip()
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 3] + "..."


def explain(log_text: str, engine: str | None = None, *, alive: bool = False) -> list[Finding]:
    """Return what a log says about a failure: causes first, each kind in the log's order.

    Args:
        log_text: the log, from the server's start on.
        engine: the engine that wrote it; all signatures are tried where it is not known.
        alive: whether the server's process still runs, so that a log that stands still is a hang.
    """
    tried = [
        signature
        for signature in load_signatures()
        if signature.is_of(engine)
        and (signature.process is None or (signature.process == "alive") == alive)
    ]
    said, stands_still = _findings(tried, log_text)
    if not any(finding.role in ("cause", "stop") for finding in said.values()):
        said = {**stands_still, **said}
    return sorted(
        said.values(), key=lambda finding: (_ORDER.index(finding.role), finding.line_number)
    )


def memory_error(log_text: str, engine: str) -> Finding | None:
    """Return the first line of a log that says that memory was used up; None if none does."""
    tried = [
        signature
        for signature in load_signatures()
        if signature.is_of(engine) and (signature.failure, signature.role) == ("memory", "cause")
    ]
    said, _ = _findings(tried, log_text)
    return said[min(said)] if said else None


def is_idle(line: str, engine: str) -> bool:
    """Whether a line is one that an engine repeats while it waits: no sign of progress."""
    return any(
        _searcher(signature.patterns).search(line) is not None
        for signature in load_signatures()
        if signature.idle and signature.is_of(engine)
    )


def _findings(
    signatures: Iterable[Signature], log_text: str
) -> tuple[dict[int, Finding], dict[int, Finding]]:
    """Return what matches a log by line index: what it says, and where it stands still."""
    lines = log_lines(log_text)
    searched = [_states(line) for line in lines]
    said: dict[int, Finding] = {}
    stands_still: dict[int, Finding] = {}
    for signature in signatures:
        index = _match(signature, searched)
        if index is not None:
            into = said if signature.process is None else stands_still
            into.setdefault(index, _finding(signature, index, lines[index]))
    return said, stands_still


def _finding(signature: Signature, index: int, line: str) -> Finding:
    search = _searcher(signature.patterns).search
    part = next((part for part in line.split("\r") if search(part)), line)
    return Finding(
        signature.id,
        signature.failure,
        signature.role,
        index + 1,
        shorten(part),
        signature.means,
        signature.remedy,
    )


def repeats(line: str) -> bool:
    """Whether a line repeats what a server was asked or answered, so that its words are others'."""
    return _REPEATED.search(line) is not None


def _states(line: str) -> Sequence[str]:
    """Return what is searched of a line: a bar's states.

    That is nothing of a request that went well, nor of what a request or its answer held.
    """
    if _ANSWERED.search(line) or repeats(line):
        return ()
    return (line,) if len(line) <= _WIDE else line.split("\r")


def _match(signature: Signature, lines: Sequence[Sequence[str]]) -> int | None:
    """Return the index of the line that counts."""
    hits = _search(signature.patterns, lines)
    if not hits or (signature.also is not None and not _search((signature.also,), lines)):
        return None
    if signature.unless_after is not None:
        later = _search((signature.unless_after,), lines)
        return hits[-1] if not later or later[-1] < hits[-1] else None
    begins = None if signature.after is None else _search((signature.after,), lines)
    ends = _search((signature.unless_before,), lines) if signature.unless_before else []
    return next((hit for hit in hits if _comes_in_order(hit, begins, ends)), None)


def _comes_in_order(hit: int, begins: Sequence[int] | None, ends: Sequence[int]) -> bool:
    """Whether a begin comes before a match, if one is wanted, and no end between the two."""
    begun = -1
    if begins is not None:
        before = bisect_left(begins, hit)
        if not before:
            return False
        begun = begins[before - 1]
    last_end = bisect_left(ends, hit) - 1
    return last_end < 0 or ends[last_end] < begun


def _search(patterns: tuple[str, ...], lines: Sequence[Sequence[str]]) -> list[int]:
    search = _searcher(patterns).search
    return [index for index, states in enumerate(lines) if any(map(search, states))]


@cache
def _searcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one expression for all: a log is gone through once for each signature."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
