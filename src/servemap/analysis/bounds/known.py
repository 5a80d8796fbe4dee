"""Numbers that are there or not known, with the reason; and the tables of models and cards."""

from functools import cache
from importlib import resources
from typing import Any

import yaml


class NotKnownError(Exception):
    """A figure cannot be had; the text is the reason, for people."""


@cache
def table(name: str) -> dict[str, Any]:
    """Return a table of this package by its file's name without the ending."""
    file = resources.files("servemap.analysis.bounds").joinpath(f"{name}.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def positive(config: dict[str, Any], key: str) -> int:
    """Return a whole number of 1 or more in config.json.

    Raises:
        NotKnownError: there is none.
    """
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotKnownError(f"config.json has no usable {key}: {value!r}"[:120])
    return value


def optional(config: dict[str, Any], key: str, default: int) -> int:
    """Return a whole number of config.json that may be absent or null; 0 is allowed.

    Raises:
        NotKnownError: it is there and no whole number.
    """
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NotKnownError(f"config.json has no usable {key}: {value!r}"[:120])
    return value
