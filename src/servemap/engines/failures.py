"""Why a server failed, from its log: signatures as data, findings for people."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field, TypeAdapter

from servemap.model.base import Model, Slug

Role = Literal["cause", "consequence", "stop", "request"]

_COLOUR = re.compile(r"\x1b?\[[0-9;]*m")
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
    failure: Slug = Field(alias="class")
    role: Role
    pattern: Pattern
    unless_before: Pattern | None = None
    unless_after: Pattern | None = None
    means: str = Field(min_length=1)
    remedy: str = Field(min_length=1)


@dataclass(frozen=True)
class Finding:
    """A signature that a log matched, with the first line (counted from 1) as evidence."""

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


def explain(log_text: str) -> list[Finding]:
    """Return what a log says about a failure: causes first, each kind in the log's order."""
    # Line ends alone: progress bars return the carriage many times within one line.
    lines = [_COLOUR.sub("", line).rstrip() for line in log_text.split("\n")]
    found = [
        Finding(
            signature.id,
            signature.failure,
            signature.role,
            index + 1,
            lines[index].strip(),
            signature.means,
            signature.remedy,
        )
        for signature in load_signatures()
        if (index := _match(signature, lines)) is not None
    ]
    return sorted(found, key=lambda finding: (_ORDER.index(finding.role), finding.line_number))


def _match(signature: Signature, lines: list[str]) -> int | None:
    """Return the index of the line that counts."""
    hits = _search(signature.pattern, lines)
    if not hits:
        return None
    if signature.unless_after is not None:
        later = _search(signature.unless_after, lines)
        return hits[-1] if not later or later[-1] < hits[-1] else None
    if signature.unless_before is not None:
        earlier = _search(signature.unless_before, lines[: hits[0]])
        return None if earlier else hits[0]
    return hits[0]


def _search(pattern: str, lines: list[str]) -> list[int]:
    search = re.compile(pattern).search
    return [index for index, line in enumerate(lines) if search(line)]
