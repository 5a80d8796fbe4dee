"""What a report consists of, before it is Markdown or HTML; all text is plain and unescaped."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Tone = Literal["", "good", "bad", "warn", "muted"]


class Cell(NamedTuple):
    """One table cell: its text, a smaller second line, and how it is to be taken."""

    text: str
    note: str = ""
    tone: Tone = ""


class Table(NamedTuple):
    """A table; `numeric` names the columns that are right-aligned numbers."""

    columns: list[str]
    rows: list[list[Cell]]
    numeric: frozenset[str] = frozenset()
    caption: str = ""
    groups: bool = False
    """Whether an empty first cell continues the group above it."""
    folded: bool = False
    """Whether the page shows it only when asked; it needs a caption."""


class Plot(NamedTuple):
    """A plotly figure as plain JSON data (`data`, `layout`), its caption and height in px."""

    caption: str
    figure: dict[str, Any]
    height: int


class Tile(NamedTuple):
    """One figure at the top of the report."""

    label: str
    value: str
    note: str = ""
    tone: Tone = ""


class Block(NamedTuple):
    """Verbatim output of a program, such as the tail of a log."""

    caption: str
    lines: list[str]


class Section(NamedTuple):
    """A heading with paragraphs, tables, plots and verbatim blocks, in this order."""

    id: str
    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    blocks: Sequence[Block] = ()
    tiles: Sequence[Tile] = ()


class Document(NamedTuple):
    """A whole report."""

    title: str
    subtitle: str
    banners: list[str]
    sections: list[Section]


MISSING = Cell("-", tone="muted")


def cell(value: Any, tone: Tone = "") -> Cell:
    """Return a cell with a value as text; None and empty text are `-`."""
    return MISSING if value is None or value == "" else Cell(str(value), tone=tone)
