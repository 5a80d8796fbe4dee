"""Making recorded output plain: encodings, terminal codes, line ends, the indent of a document."""

import codecs
import re
from collections.abc import Iterator

# ECMA-48: control sequences, operating system commands, and other escapes of two characters.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
# What a terminal would not show, tab and line feed excepted.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CONTROLS = [character for character in map(chr, range(128)) if _CONTROL.match(character)]
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decoded(raw: bytes) -> str:
    """Return the text of `raw`: UTF-8, or UTF-16 with a byte order mark (PowerShell's redirection).

    Bytes that are no text become U+FFFD.
    """
    encoding = "utf-16" if raw.startswith(_UTF16) else "utf-8-sig"
    return raw.decode(encoding, errors="replace")


def clean(text: str) -> str:
    """Return a text whose lines end with a line feed, without what only a terminal obeys."""
    # Most texts are clean, and to look for each character takes a tenth of a substitution.
    if text.isprintable() or not any(character in text for character in _CONTROLS):
        return text
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)


def printable(text: str) -> str:
    """Return a text that does nothing to a terminal but show itself."""
    plain = _ANSI.sub("", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", plain)


def without_indent(text: str) -> str:
    """Return a text without the indent that all its lines have (a listing in a document)."""
    first = text.lstrip("\n")[:1]
    if first not in (" ", "\t"):
        return text
    lines = [line.rstrip() for line in text.split("\n")]
    indents = {line[: len(line) - len(line.lstrip())] for line in lines if line}
    indent = min(indents, key=len, default="")
    if not all(other.startswith(indent) for other in indents):
        return text
    return "\n".join(line[len(indent) :] for line in lines)


def cut_line(text: str) -> int:
    """Return the number of a last line that has no line end, and so may be cut; else 0."""
    return 0 if text.endswith("\n") else text.count("\n") + 1


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield every line that is not blank with its number (1-based), without trailing blanks."""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.rstrip()
        if stripped:
            yield number, stripped
