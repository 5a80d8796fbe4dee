"""A strict applier of unified diffs: exact lines at the stated place, no fuzz, no offset.

Format: POSIX.1-2017 `diff -u`, with git's extended headers as far as they say nothing that a
change of one file's text cannot do. Works on bytes; only LF ends a line, so a CR is content.
"""

import re
from typing import List, NamedTuple, Optional, Tuple

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_REFUSED = (
    (b"rename ", "renames a file"),
    (b"copy ", "copies a file"),
    (b"old mode ", "changes a file's mode"),
    (b"deleted file mode ", "removes a file"),
    (b"GIT binary patch", "is binary"),
    (b"Binary files ", "is binary"),
)
_NO_NEWLINE = b"\\"
_SIGNATURE = b"--"  # a mail's signature follows the last hunk of `git format-patch`


class DiffError(ValueError):
    """A diff that cannot be read or does not fit; the message is one sentence."""


class Hunk(NamedTuple):
    """Lines to find and their replacement, at a 0-based line number of the old file."""

    at: int
    old: List[bytes]
    new: List[bytes]


class FileDiff(NamedTuple):
    """The changes of one file; a name is None for /dev/null."""

    old_name: Optional[str]
    new_name: Optional[str]
    hunks: List[Hunk]


def split_lines(data: bytes) -> List[bytes]:
    """Split after each LF; the last line may lack it."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def parse(data: bytes) -> List[FileDiff]:
    """Return the files that a diff changes, in order.

    Raises:
        DiffError: no change in it, a malformed hunk, or something other than a change of text.
    """
    lines = split_lines(data)
    files: List[FileDiff] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ "):
            names = (_name(line), _name(lines[at + 1]))
            hunks, at = _hunks(lines, at + 2)
            files.append(FileDiff(names[0], names[1], hunks))
            continue
        for start, what in _REFUSED:
            if line.startswith(start):
                raise DiffError(f"line {at + 1} of the diff {what}")
        stray = files and line[:1] in (b"+", b"-", b" ") and line.rstrip() != _SIGNATURE
        if stray or line.startswith(b"@@ "):
            raise DiffError(f"line {at + 1} of the diff belongs to no hunk")
        at += 1
    if not files:
        raise DiffError("it holds no '---', '+++' and '@@' lines")
    return files


def _name(header: bytes) -> Optional[str]:
    name = header[4:].rstrip(b"\r\n").split(b"\t")[0].decode("utf-8", "surrogateescape")
    return None if name == "/dev/null" else name


def _hunks(lines: List[bytes], at: int) -> Tuple[List[Hunk], int]:
    hunks: List[Hunk] = []
    while at < len(lines) and lines[at].startswith(b"@@ "):
        match = _HUNK.match(lines[at])
        if match is None:
            raise DiffError(f"line {at + 1} of the diff is not a hunk header")
        start, old_count, _, new_count = (int(part) if part else 1 for part in match.groups())
        old, new, at = _body(lines, at + 1, old_count, new_count)
        hunks.append(Hunk(start if old_count == 0 else start - 1, old, new))
    if not hunks:
        raise DiffError(f"line {at + 1} of the diff should be a hunk header")
    return hunks, at


def _body(
    lines: List[bytes], at: int, old_count: int, new_count: int
) -> Tuple[List[bytes], List[bytes], int]:
    old: List[bytes] = []
    new: List[bytes] = []
    sides: List[List[bytes]] = []
    while len(old) < old_count or len(new) < new_count or _is_marker(lines, at):
        if at >= len(lines):
            raise DiffError("the diff ends within a hunk")
        line = lines[at]
        if line.startswith(_NO_NEWLINE):
            if not sides:
                raise DiffError(f"line {at + 1} of the diff follows no line of a hunk")
            for side in sides:
                side[-1] = side[-1][:-1]
            sides = []
        else:
            # some tools strip the blank that marks an empty line of context
            kind = b" " if line in (b"\n", b"\r\n") else line[:1]
            if kind not in (b" ", b"-", b"+"):
                raise DiffError(f"line {at + 1} of the diff is no line of a hunk")
            sides = [*([old] if kind != b"+" else []), *([new] if kind != b"-" else [])]
            text = line if line in (b"\n", b"\r\n") else line[1:]
            for side in sides:
                side.append(text if text.endswith(b"\n") else text + b"\n")
        at += 1
    if len(old) != old_count or len(new) != new_count:
        raise DiffError(f"the hunk that ends at line {at} of the diff contradicts its header")
    return old, new, at


def _is_marker(lines: List[bytes], at: int) -> bool:
    return at < len(lines) and lines[at].startswith(_NO_NEWLINE)


def apply(diff: FileDiff, original: bytes) -> bytes:
    """Return the changed file.

    Raises:
        DiffError: lines at the stated place are not the ones that the diff expects.
    """
    lines = split_lines(original)
    result: List[bytes] = []
    done = 0
    for number, hunk in enumerate(diff.hunks, start=1):
        if hunk.at < done:
            raise DiffError(f"hunk {number} overlaps the one before it")
        end = hunk.at + len(hunk.old)
        if lines[hunk.at : end] != hunk.old or hunk.at > len(lines):
            raise DiffError(_misfit(number, hunk, lines))
        result += lines[done : hunk.at]
        result += hunk.new
        done = end
    result += lines[done:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        raise DiffError("a line without a newline would end up inside the file")
    return b"".join(result)


def _misfit(number: int, hunk: Hunk, lines: List[bytes]) -> str:
    text = f"hunk {number} does not fit at line {hunk.at + 1}"
    size = len(hunk.old)
    places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == hunk.old]
    if size and places:
        return f"{text}; its lines are found at line {places[0] + 1}"
    if [line.rstrip(b"\r\n") for line in lines[hunk.at : hunk.at + size]] == [
        line.rstrip(b"\r\n") for line in hunk.old
    ]:
        return f"{text}: only the line ends differ"
    return text
