"""What the vendors' tools said of a node's cards when its facts were frozen."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.kinds import parse
from servemap.parsers.values import mapping, text


def tool_text(facts: Mapping[str, Any], command: str) -> str:
    """Return what a command printed; empty where it was not there or said nothing."""
    tools = mapping(mapping(facts.get("accelerators")).get("tools"))
    return text(mapping(tools.get(command)).get("stdout")) or ""


def tool_data(facts: Mapping[str, Any], command: str, kind: str) -> dict[str, Any]:
    """Return what a command printed, parsed as `servemap parse KIND`; empty where it cannot be.

    It is shared: not to be changed.
    """
    return _parsed(kind, tool_text(facts, command))


@lru_cache(maxsize=64)
def _parsed(kind: str, said: str) -> dict[str, Any]:
    """Every repeat of a run asks for the same texts, thousands of lines each."""
    try:
        return mapping(parse(kind, said.encode()).data)
    except ParseError:
        return {}
