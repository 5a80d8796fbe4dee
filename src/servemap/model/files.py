"""Reading files that others may have replaced: a pipe or device never holds the reader up."""

import errno
import json
import math
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


def finite(digits: str) -> float | None:
    """Return a decimal number, None beyond the largest float."""
    value = float(digits)
    return value if math.isfinite(value) else None


# NaN, infinities and decimals beyond the largest float are None.
_DECODER = json.JSONDecoder(parse_float=finite, parse_constant=lambda _: None)


def parse_json(data: bytes | str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """Return the value of a JSON text, what is no number as None; ValueError where it is none."""
    if not isinstance(data, str):
        data = data.decode(json.detect_encoding(data), "surrogatepass")
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json_value(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: it is no JSON, or no UTF-8.
    """
    return parse_json(read_bytes(path))
