"""Files that other programs read while we write them: whole or not at all."""

import json
import os
from typing import Any


def private(path: str, flags: int) -> int:
    """Open a file that only this user may read where it is made, as the `opener` of `open`."""
    return os.open(path, flags, 0o600)


def write_text_atomic(path: str, text: str) -> None:
    """Write `text` so that readers see the old file or the whole new one, also after a crash."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, ".%s.%d.tmp" % (os.path.basename(path), os.getpid()))
    try:
        with open(temporary, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_json_atomic(path: str, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text_atomic(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_spec(path: str, required: Any) -> Any:
    """Read a JSON object that must hold the keys of `required` ({key: type or types}).

    Raises:
        ValueError: one sentence naming the file and what is wrong with it.
    """
    try:
        with open(path, encoding="utf-8") as handle:
            spec = json.load(handle)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError("cannot read the spec %s: %s" % (path, error)) from error
    if not isinstance(spec, dict):
        raise ValueError("the spec %s is not a JSON object" % path)
    for key, kind in required.items():
        if not isinstance(spec.get(key), kind) or isinstance(spec.get(key), bool):
            raise ValueError("the spec %s lacks a valid %r" % (path, key))
    return spec
