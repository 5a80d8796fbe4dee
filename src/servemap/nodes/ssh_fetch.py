"""Files of a folder that arrive as `onnode.pack` sends them: checked, whole, inside the folder."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from servemap.model.canon import file_sha256
from servemap.model.errors import NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Fetched
from servemap.onnode.pack import MAX_FILES

BLOCK_LIMIT = 1 << 24
LINE_LIMIT = 1 << 20


class Stream:
    """Lines and blocks out of pieces of any size.

    Args:
        more: returns the next piece, b"" at the end.
    """

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._piece = memoryview(b"")

    def line(self) -> bytes:
        """Return a line without its end; EOFError where the stream ends before."""
        parts: list[bytes] = []
        length = 0
        while length < LINE_LIMIT:
            if not self._piece:
                self._fill()
            data = bytes(self._piece[:LINE_LIMIT])
            at = data.find(b"\n")
            if at >= 0:
                self._piece = self._piece[at + 1 :]
                return b"".join([*parts, data[:at]])
            parts.append(data)
            length += len(data)
            self._piece = self._piece[len(data) :]
        raise ValueError("a line without an end")

    def block(self, size: int, use: Callable[[memoryview], object]) -> None:
        """Give the next `size` bytes to `use`, in pieces; EOFError where the stream ends before."""
        while size:
            if not self._piece:
                self._fill()
            part = self._piece[:size]
            use(part)
            size -= len(part)
            self._piece = self._piece[len(part) :]

    def _fill(self) -> None:
        piece = self._more()
        if not piece:
            raise EOFError
        self._piece = memoryview(piece)


def known_files(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return {path: (size, mtime_ns, sha256)} of the regular files that are here already."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            name = path.relative_to(folder).as_posix()
            found[name] = (status.st_size, status.st_mtime_ns, file_sha256(path))
    return found


def target_of(folder: Path, name: str) -> Path:
    """Return where a file of the node belongs.

    Raises:
        ValueError: its path leaves the folder, also by way of a link that lies in it.
    """
    pure = PurePosixPath(name)
    parts = name.split("/")
    if pure.is_absolute() or not name or "\0" in name or set(parts) & {"", ".", ".."}:
        raise ValueError(f"the path {name!r} leaves the folder")
    target = folder.joinpath(*parts)
    if not target.parent.resolve().is_relative_to(folder.resolve()) or target.is_dir():
        raise ValueError(f"the path {name!r} is not inside the folder")
    return target


def receive(
    stream: Stream, folder: Path, known: dict[str, tuple[int, int, str]], max_bytes: int | None
) -> list[Fetched]:
    """Write what arrives below `folder` and return it, in the order of arrival.

    A file that is not complete is not written, so that the next fetch continues with it.

    Raises:
        NodeError: as `Node.fetch` says; `where` is left to the caller.
        EOFError: the stream ended too early.
        ValueError: it is not what `onnode.pack` sends.
        OSError: a file cannot be written here.
    """
    head = _object(stream.line())
    _refuse(head)
    if max_bytes is not None and _number(head, "bytes") > max_bytes:
        raise NodeError(
            f"the folder holds {head['bytes']} bytes, allowed are {max_bytes}",
            "",
            "raise policy.max_fetch_bytes, or see why it grew",
        )
    found: list[Fetched] = []
    left = max_bytes
    while len(found) <= MAX_FILES:
        about = _object(stream.line())
        _refuse(about)
        if about.get("end") is True:
            return found
        name, size, mtime_ns = (
            str(about.get("path")),
            _number(about, "size"),
            _number(about, "mtime_ns"),
        )
        if about.get("same") is True:
            if known.get(name) != (size, mtime_ns, about.get("sha256")):
                raise ValueError(f"{name!r} is not here")
            found.append(Fetched(name, size, known[name][2]))
            continue
        fetched = _file(stream, folder, name, mtime_ns, left)
        left = None if left is None else left - fetched.size
        found.append(fetched)
    raise ValueError(f"it holds more than {MAX_FILES} files")


def _file(stream: Stream, folder: Path, name: str, mtime_ns: int, max_bytes: int | None) -> Fetched:
    target = target_of(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: the file's may be as long as names can be.
    short = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    temporary = target.with_name(f".{short}.{os.getpid()}.tmp")
    digest, size = hashlib.sha256(), 0
    try:
        with temporary.open("wb") as handle:

            def use(part: memoryview) -> None:
                handle.write(part)
                digest.update(part)

            while length := int(stream.line()):
                if not 0 < length <= BLOCK_LIMIT:
                    raise ValueError(f"a block of {length} bytes")
                size += length
                if max_bytes is not None and size > max_bytes:
                    raise NodeError(
                        f"{name!r} grew beyond the bytes that are allowed while it was read",
                        "",
                        "raise policy.max_fetch_bytes, or see why it grows",
                    )
                stream.block(length, use)
        end = _object(stream.line())
        _refuse(end)
        if (end.get("sha256"), end.get("size")) != (digest.hexdigest(), size):
            raise NodeError(
                f"{name!r} arrived with another digest than it was sent with",
                "",
                "try again; if it happens again, look for faulty memory or a faulty disk",
            )
        os.utime(temporary, ns=(mtime_ns, mtime_ns))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return Fetched(name, size, digest.hexdigest(), end.get("changed") is True)


def _refuse(value: dict[str, Any]) -> None:
    if "error" in value:
        raise NodeError(
            f"a folder cannot be read: {value['error']}",
            "",
            "see that it exists and that this user may read everything in it",
        )


def _object(data: bytes) -> dict[str, Any]:
    value = parse_json(data)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _number(value: dict[str, Any], key: str) -> int:
    number = value.get(key)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
        raise ValueError(f"{key} is no number of bytes, files or nanoseconds")
    return number
