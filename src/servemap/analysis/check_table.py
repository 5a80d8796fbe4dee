"""The table of checks, as data: `checks.yaml` beside this file."""

from functools import cache
from importlib import resources
from typing import NamedTuple

import yaml


class CheckText(NamedTuple):
    """What a check asks; `limits` are names in limits.yaml."""

    name: str
    limits: tuple[str, ...]
    asks: str
    protects: str
    not_applicable: str


@cache
def check_texts() -> list[CheckText]:
    """Return the table of checks.yaml."""
    file = resources.files("servemap.analysis").joinpath("checks.yaml")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [CheckText(**{**row, "limits": tuple(row["limits"])}) for row in content["checks"]]
