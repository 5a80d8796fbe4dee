"""The files of a load run: requests.jsonl as it grows, client.json last and whole."""

import json
import os
from typing import Any, Dict


class WriteError(Exception):
    """A results file could not be written (disk full, for one)."""


class RequestLog:
    """Appends records to DIR/requests.jsonl; a failed write leaves whole lines only."""

    def __init__(self, out: str) -> None:
        self._path = os.path.join(out, "requests.jsonl")
        try:
            self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise WriteError(f"{self._path}: {error.strerror}") from error
        self._size = 0

    def write(self, record: Dict[str, Any]) -> None:
        """Append one line; raises WriteError after cutting a half-written one off."""
        line = json.dumps(record, separators=(",", ":")).encode("utf-8") + b"\n"
        view = memoryview(line)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._size)
            raise WriteError(f"{self._path}: {error.strerror}") from error
        self._size += len(line)

    def close(self) -> None:
        """Put everything on disk; raises WriteError."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise WriteError(f"{self._path}: {error.strerror}") from error


def write_json(out: str, name: str, value: Dict[str, Any]) -> None:
    """Write DIR/NAME so that it is there whole or not at all; raises WriteError."""
    path = os.path.join(out, name)
    scratch = f"{path}.tmp"
    try:
        with open(scratch, "w", encoding="utf-8") as handle:
            json.dump(value, handle, separators=(",", ":"))
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(scratch, path)
        folder = os.open(out, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise WriteError(f"{path}: {error.strerror}") from error
