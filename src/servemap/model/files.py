"""Reading files that others may have replaced: a pipe or device never holds the reader up."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any


def regular(path: str, flags: int) -> int:
    """Open a regular file, as the `opener` of `open`.

    Raises:
        OSError: it cannot be opened, or is something else than a regular file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_bytes(path: Path) -> bytes:
    """Return a regular file's bytes; OSError where there is none to read."""
    with open(path, "rb", opener=regular) as handle:
        return handle.read()


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text, NaN and infinities as None; ValueError where it is none."""
    try:
        return json.loads(data, parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json_value(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: it is no JSON, or no UTF-8.
    """
    return parse_json(read_bytes(path))
