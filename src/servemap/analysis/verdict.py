"""Is a measurement valid? Checks with their value, limit and outcome.

`ok` is None where a check does not apply (`n/a`), with the reason in `note`. A figure of a
measurement with a failed check is kept as evidence and never plotted or averaged. The checks
themselves are in `checks/`; `checks.yaml` says of each what it asks and what it protects.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import yaml

from servemap.model.errors import ConfigError


class Check(NamedTuple):
    """One condition: what was met, what is allowed, and whether it holds (None: n/a)."""

    name: str
    value: float | str | None
    limit: float | str | None
    ok: bool | None
    note: str = ""


@cache
def default_limits() -> dict[str, float]:
    """Return the limits of limits.yaml by name."""
    file = resources.files("servemap.analysis").joinpath("limits.yaml")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {name: float(value) for name, value in content["limits"].items()}


def resolve_limits(overrides: Mapping[str, float]) -> dict[str, float]:
    """Return the defaults with `overrides` laid over them; ConfigError on an unknown name."""
    limits = dict(default_limits())
    for name, value in overrides.items():
        if name not in limits:
            raise ConfigError(
                f"unknown limit {name!r}",
                f"limits.{name}",
                f"use one of: {', '.join(sorted(limits))}",
            )
        limits[name] = float(value)
    return limits


def at_most(name: str, value: float | None, limit: float) -> Check:
    """Return a check of a figure that the client records."""
    if value is None:
        return Check(name, None, limit, None, "the client did not record it")
    return Check(name, value, limit, value <= limit)


def verdict(checks: Iterable[Check]) -> tuple[str, list[str]]:
    """Return `valid` or `invalid`, and a sentence for each failed check."""
    reasons = [say(check) for check in checks if check.ok is False]
    return ("invalid" if reasons else "valid"), reasons


def say(check: Check) -> str:
    """Return a failed check as a sentence: its value, its limit and the note."""
    value = f"{check.value:.4g}" if isinstance(check.value, float) else check.value
    limit = f"{check.limit:.4g}" if isinstance(check.limit, float) else check.limit
    sentence = f"{check.name}: {'missing' if value is None else value}, limit {limit}"
    return f"{sentence} ({check.note})" if check.note else sentence
