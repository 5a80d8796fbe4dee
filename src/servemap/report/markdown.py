"""A report as Markdown; text from raw data cannot become markup."""

import re

from tabulate import tabulate

from servemap.report.document import Block, Cell, Document, Section, Table

_MARKUP = re.compile(r"([\\`*_\[\]|#])")


def to_markdown(document: Document, html_name: str) -> str:
    """Return report.md; `html_name` is the report with the plots, relative to it."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle)]
    parts += [f"> **{_text(banner)}**" for banner in document.banners]
    parts.append(f"Plots and the telemetry of each window are in [{html_name}]({html_name}).")
    for section in document.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_text(section.title)}"]
    if section.tiles:
        parts.append(", ".join(f"**{_text(t.value)}** {_text(t.label)}" for t in section.tiles))
    parts += [_text(paragraph) for paragraph in section.paragraphs]
    for table in section.tables:
        parts += [f"**{_text(table.caption)}**"] if table.caption else []
        parts.append(_table(table))
    parts += [part for block in section.blocks for part in _block(block)]
    return parts


def _table(table: Table) -> str:
    if not table.rows:
        return "(none)"
    return tabulate(
        [[_cell(cell) for cell in row] for row in table.rows],
        headers=[_text(column) for column in table.columns],
        tablefmt="pipe",
        colalign=["right" if c in table.numeric else "left" for c in table.columns],
        disable_numparse=True,
    )


def _cell(cell: Cell) -> str:
    return f"{_text(cell.text)} ({_text(cell.note)})" if cell.note else _text(cell.text)


def _block(block: Block) -> list[str]:
    # Indented, so that no line of a log can end the block.
    lines = [f"    {_printable(line)}" for line in block.lines]
    return [f"**{_text(block.caption)}**", "\n".join(lines)]


def _text(value: str) -> str:
    escaped = _MARKUP.sub(r"\\\1", _printable(value))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _printable(value: str) -> str:
    return "".join(c if c.isprintable() else " " for c in value)
