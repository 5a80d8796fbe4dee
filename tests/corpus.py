"""Recorded outputs of other people's tools, read in place: each with the test of its values."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from servemap.parsers.frame import Extract
from servemap.parsers.kinds import parse
from tests.parts import need

Check = Callable[[Any, list[Any]], None]

# {file: kinds} of the samples whose values are tested, filled as the test modules are imported.
TESTED: dict[str, list[str]] = {}
# (file, kind, test) of the same samples: what docs/corpus.md counts.
CHECKS: list[tuple[str, str, Callable[[], None]]] = []


def read_sample(file: str) -> bytes:
    """Return a sample's bytes; the test is skipped where there is no corpus."""
    return (Path(need("corpus")) / file).read_bytes()


@cache
def index() -> dict[str, dict[str, str]]:
    """Return the rows of the corpus' index by file."""
    with (Path(need("corpus")) / "INDEX.tsv").open(encoding="utf-8", newline="") as handle:
        rows = csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["file"]: row for row in rows}


def extract(kind: str, raw: bytes) -> Extract:
    """Parse, and prove that the result can be written as strict JSON and comes back the same."""
    found = parse(kind, raw)
    assert json.loads(json.dumps(found.data, allow_nan=False)) == found.data
    return found


# What is counted over a whole text, and so is less in a part of it.
TOTALS = {"links", "pairs", "ranks", "channels", "completed", "times", "nodes",
          "waived_without_name", "gpus"}  # fmt: skip


def numbers(data: Any, name: str = "") -> Counter[tuple[str, float]]:
    """Count the numbers in some data, each with the key that it stands under."""
    if isinstance(data, dict):
        return sum((numbers(item, key) for key, item in data.items()), Counter())
    if isinstance(data, list):
        return sum((numbers(item, name) for item in data), Counter())
    is_number = isinstance(data, int | float) and not isinstance(data, bool) and name not in TOTALS
    return Counter([(name, data)] if is_number else [])


def sample(file: str, kind: str) -> Callable[[Check], Callable[[], None]]:
    """Make a test of a function that checks the data and the skipped pieces of one sample."""
    TESTED.setdefault(file, []).append(kind)

    def decorate(check: Check) -> Callable[[], None]:
        def test() -> None:
            check(*extract(kind, read_sample(file)))

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        CHECKS.append((file, kind, test))
        return test

    return decorate
