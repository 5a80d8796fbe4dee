"""Table of the run's cards with what their vendors' sheets say that they can do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from servemap.analysis.bounds.cards import Sheet, card_names, sheet
from servemap.analysis.bounds.known import NotKnownError
from servemap.report.document import MISSING, Cell, Table
from servemap.report.numbers import plain

_FIGURES = {
    "Memory GB": "memory_gb",
    "Memory GB/s": "gb_s",
    "BF16 TFLOP/s": "bf16_tflops",
    "FP8 TFLOP/s": "fp8_tflops",
    "NVLink or xGMI GB/s": "link_gb_s",
    "Power W": "power_w",
}
_COLUMNS = ["Node", "Card", "Number", *_FIGURES]


class Listed(NamedTuple):
    """Cards of one kind on a node."""

    node: str
    number: int
    sheet: Sheet


def sheets_of(facts: Mapping[str, Mapping[str, Any]]) -> list[Listed]:
    """Return the cards of each node whose sheets are in the table."""
    found = []
    for node, own in facts.items():
        with suppress(NotKnownError):
            for name, number in Counter(card_names(own)).items():
                found.append(Listed(node, number, sheet(name)))
    return found


def sheets_table(found: Sequence[Listed]) -> Table:
    """Return the cards with the figures of their sheets."""
    rows = [[Cell(one.node), Cell(one.sheet.name), Cell(str(one.number)), *_figures(one.sheet)]
            for one in found]  # fmt: skip
    title = "Cards, by their vendors' sheets: peaks without sparsity, links in one direction"
    return Table(_COLUMNS, rows, frozenset(_COLUMNS[2:]), title)


def sheets_note(found: Sequence[Listed]) -> str:
    """Return where the figures are from."""
    sources = {one.sheet.name: "; ".join((one.sheet.source, *one.sheet.others)) for one in found}
    said = " ".join(f"{name}: {source}." for name, source in sources.items())
    return f"Figures of cards, one device as its vendor's tool counts them. {said}"


def _figures(card: Sheet) -> list[Cell]:
    values = [getattr(card, key) for key in _FIGURES.values()]
    return [MISSING if one is None else Cell(plain(one)) for one in values]
