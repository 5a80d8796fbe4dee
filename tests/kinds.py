"""What the tests of all kinds share: texts of each kind, and what must hold of any result."""

import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from servemap.model.errors import ParseError
from servemap.parsers.frame import Extract
from servemap.parsers.kinds import KINDS
from tests.corpus import TESTED, TOTALS, extract, numbers, read_sample
from tests.parts import PARTS

PARSERS = Path(__file__).parent / "unit" / "parsers"
# One or more made-up outputs of each kind: KIND.txt, KIND.2.txt.
MADE = {
    kind: [path.read_bytes() for path in sorted((PARSERS / "made").glob(f"{kind}.*"))]
    for kind in KINDS
}
ALL_MADE = [(kind, text) for kind, texts in MADE.items() for text in texts]
# Longer samples are tried by fewer tests.
LONGEST = 20_000
# What is said of a text as a whole, and so is other of a part of it.
_OF_THE_WHOLE = {*TOTALS, "complete", "distributed", "error", "message", "status"}
# Kinds that add up what many lines say: of these only single numbers are compared.
SUMMED = {"nccl-log"}


@cache
def samples() -> list[tuple[str, str]]:
    """Return (file, kind) of all samples whose values are tested, with or without a corpus."""
    for module in sorted(PARSERS.glob("test_corpus_*.py")):
        importlib.import_module(f"tests.unit.parsers.{module.stem}")
    return [(file, kind) for file, kinds in TESTED.items() for kind in dict.fromkeys(kinds)]


@cache
def texts(kind: str) -> list[bytes]:
    """Return up to `LONGEST` bytes of each made-up text of a kind and of its samples here."""
    has_corpus = PARTS["corpus"][0]() is not None
    own = [read_sample(file) for file, name in samples() if name == kind and has_corpus]
    return [raw[:LONGEST] for raw in MADE[kind] + own]


def tolerant(kind: str, raw: bytes) -> Extract | None:
    """Parse; the parser's own error is an answer (None), everything else fails the test.

    `extract` proves that the data are strict JSON.
    """
    try:
        found = extract(kind, raw)
    except ParseError as error:
        assert error.what and error.where and error.remedy
        return None
    lines = raw.count(b"\n") + raw.count(b"\r") + 1
    assert all(1 <= piece.line <= lines and piece.reason for piece in found.skipped)
    return found


def guesses(part: Any, whole: Any, at: str = "") -> Iterator[str]:
    """Yield what the data of a part of a text say that those of the whole do not, with its place.

    A part may lack anything. A field that comes again is a list in the whole, and plain where the
    part has it once.
    """
    if isinstance(whole, list) and not isinstance(part, list) and whole:
        whole = whole[0]
    if isinstance(part, dict) and isinstance(whole, dict):
        for name, item in part.items():
            if name not in _OF_THE_WHOLE:
                yield from guesses(item, whole.get(name), f"{at}.{name}")
    elif isinstance(part, list) and isinstance(whole, list):
        for place, item in enumerate(part):
            other = whole[place] if place < len(whole) else None
            yield from guesses(item, other, f"{at}[{place}]")
    elif part not in (None, [], {}) and (type(part), part) != (type(whole), whole):
        yield f"{at}: {json.dumps(part)} instead of {json.dumps(whole)}"


_PRINTED = (r"[0-9]+", r"[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?", r"[0-9]+,[0-9]+")


@cache
def _factors() -> list[float]:
    table = yaml.safe_load(files("servemap.parsers").joinpath("units.yaml").read_text("utf-8"))
    return sorted({factor for spellings in table.values() for factor in spellings.values()})


def not_printed(data: Any, raw: bytes) -> list[tuple[str, float]]:
    """Return the numbers in some data that do not stand in a text, in whatever unit."""
    text = raw.decode(errors="replace")
    printed = {
        float(word.replace(",", ".")) for form in _PRINTED for word in re.findall(form, text)
    }

    def is_printed(value: float) -> bool:
        return float(abs(value)) in printed or any(
            float(f"{abs(value) / factor:.12g}") in printed for factor in _factors()
        )

    return [(name, value) for name, value in numbers(data) if not is_printed(value)]
