"""Lines that are whole: tools end what they print, so a last line without an end may be cut."""

from collections.abc import Iterator

from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.records import Skipped


def ended(text: str, skipped: list[Skipped]) -> Iterator[tuple[int, str]]:
    """Return every line that is not blank and has a line end, with its number (1-based).

    A last one without is told in `skipped`: half a number looks like another number.
    """
    cut = cut_line(text)
    return _but(cut, text, skipped) if cut else numbered(text)


def _but(cut: int, text: str, skipped: list[Skipped]) -> Iterator[tuple[int, str]]:
    for number, line in numbered(text):
        if number == cut:
            skipped.append(Skipped(number, "a last line without its end, which may be cut"))
        else:
            yield number, line
