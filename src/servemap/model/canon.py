"""Canonical JSON and digests: one spelling, so that equal things compare equal."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from servemap.model.files import regular


def canonical_json(value: Any) -> str:
    """Return `value` as JSON with sorted keys and no spaces, NaN refused (ValueError)."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """Return the sha256 hex digest of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 hex digest of a file's bytes, read in blocks."""
    with open(path, "rb", opener=regular) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` so that readers see the old file or the whole new one, also after a crash.

    Half a surrogate pair, which JSON of others may hold, is written as its escape.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json_atomic(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinities are refused."""
    write_text_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
