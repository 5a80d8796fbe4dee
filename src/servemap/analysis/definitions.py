"""The meaning of the figures, as data: `definitions.yaml` beside this file."""

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def definitions() -> dict[str, Any]:
    """Return {"version": int, "figures": {name: meaning}}, stored beside the figures."""
    file = resources.files("servemap.analysis").joinpath("definitions.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content
