"""What every kind of `servemap parse` is: a pure function from cleaned text to an extract."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from servemap.model.errors import ParseError
from servemap.parsers.clean import clean, decoded, without_indent
from servemap.parsers.prefixes import one_writer, without_log_driver
from servemap.parsers.records import Skipped

# A parser holds its input and its result in memory; a longer recording is cut into pieces first.
MAX_BYTES = 256 * 2**20


class Extract(NamedTuple):
    """What a parser made of one text.

    `data` can be written as JSON: units are in the names of its keys, a missing value is None.
    `skipped` names each piece of the input that gave nothing, with the reason.
    """

    data: dict[str, Any]
    skipped: list[Skipped]


class Notes(NamedTuple):
    """What was left out while rows were read, and what the tool said instead of rows."""

    skipped: list[Skipped]
    said: list[str]


class Kind(NamedTuple):
    """One kind of input.

    Args:
        name: as typed after `servemap parse`.
        parse: from the cleaned text (`clean.py`) to its extract; raises ParseError and nothing
            else. Its docstring says what the data hold and is the kind's documentation.
        command: what writes such input.
        source: where the format is known from.
        reads_labels: whether the parser itself tells apart what launchers put before lines.
    """

    name: str
    parse: Callable[[str], Extract]
    command: str
    source: str
    reads_labels: bool = False

    @property
    def documentation(self) -> str:
        """What the data hold: the docstring of the parser, up to its section `Raises`."""
        return inspect.cleandoc(self.parse.__doc__ or "").partition("\n\nRaises:")[0]

    @property
    def about(self) -> str:
        """The first line of the documentation."""
        return self.documentation.partition("\n")[0]


def check_size(size: int, where: str) -> None:
    """Refuse an input of `size` bytes that is longer than a parser takes.

    Raises:
        ParseError: it is longer than `MAX_BYTES`.
    """
    if size > MAX_BYTES:
        raise ParseError(
            f"the input has {size} bytes or more, the limit is {MAX_BYTES}",
            where,
            "cut it at line ends and parse the pieces",
        )


def extract(kind: Kind, raw: bytes) -> Extract:
    """Return what `raw` holds.

    Raises:
        ParseError: it is empty, too long, or holds nothing of this kind.
    """
    check_size(len(raw), kind.name)
    # Terminal codes are escaped in a log driver's records.
    text = clean(without_log_driver(clean(decoded(raw))))
    if not kind.reads_labels:
        text = one_writer(kind.name, text)
    text = without_indent(text)
    if not text.strip():
        raise ParseError(
            "the input is empty", kind.name, "look whether the tool ran: its own error"
        )
    return kind.parse(text)


def foreign(kind: str, wanted: str, remedy: str = "see servemap parse --list") -> ParseError:
    """Return the error for a text that holds nothing of `kind`: it lacks what is `wanted`."""
    return ParseError(f"this is no output of {kind}: there is no {wanted}", kind, remedy)
