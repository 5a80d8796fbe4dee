"""What rocm-smi and amd-smi have in common: the table of their fields, csv."""

import csv
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def table() -> dict[str, Any]:
    """Return amd.yaml."""
    file = files("servemap.parsers.accelerators").joinpath("amd.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@lru_cache(maxsize=4096)
def is_text(name: str) -> bool:
    """Return whether a field with this key holds digits that are no number."""
    return re.search(table()["text"], name) is not None


def csv_cells(row: str) -> list[str]:
    """Return the cells of one line of csv, none where it is broken."""
    try:
        return [cell.strip() for cell in next(csv.reader([row]), [])]
    except csv.Error:
        return []
