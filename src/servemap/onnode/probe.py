"""Reading a machine that may lack anything: what is missing is a reason, never an exception."""

import os
import shutil
from typing import Any, Dict, List, Optional

from .redact import redact_text
from .tool import run

TOOL_TIMEOUT_S = 15.0
MAX_OUTPUT_CHARS = 1 << 20
MAX_OUTPUT_BYTES = 16 << 20
# What it leaves in a session of its own: without root, a process that holds its namespace for ever.
LEAVING = "podman"


def read_file(path: str, reasons: Optional[Dict[str, str]] = None) -> Optional[str]:
    """Return the stripped text of a file, or None with the reason put under its base name."""
    try:
        with open(path, "rb") as handle:
            return handle.read().decode("utf-8", "replace").strip()
    except OSError as error:
        if reasons is not None:
            reasons[os.path.basename(path)] = error.strerror or str(error)
        return None


def read_int(path: str, reasons: Optional[Dict[str, str]] = None) -> Optional[int]:
    """Return the number in a file, or None with the reason put under its base name."""
    text = read_file(path, reasons)
    try:
        return None if text is None else int(text)
    except ValueError:
        if reasons is not None:
            reasons[os.path.basename(path)] = "not a number: %r" % text
        return None


def list_folder(path: str) -> List[str]:
    """Return the sorted names in a folder; [] when it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def run_tool(argv: List[str], timeout_s: float = TOOL_TIMEOUT_S) -> Dict[str, Any]:
    """Run a tool with LC_ALL=C and return what it said, redacted.

    What it leaves running is ended.

    Returns:
        `{"argv", "code", "stdout", "stderr"}`, or `{"argv", "error"}` where it is not there,
        cannot be started or does not end in time.
    """
    record: Dict[str, Any] = {"argv": argv}
    if shutil.which(argv[0]) is None:
        away = "no such program: %s" if os.sep in argv[0] else "%s is not on PATH"
        record["error"] = away % argv[0]
        return record
    try:
        said = run(argv, timeout_s, MAX_OUTPUT_BYTES, leaves=LEAVING in argv)
    except OSError as error:
        record["error"] = "cannot be started: %s" % error.strerror
        return record
    if said.code is None:
        limit = "%d bytes" % MAX_OUTPUT_BYTES if said.too_much else "%g s" % timeout_s
        record["error"] = "did not end within " + limit
        return record
    record["code"] = said.code
    record["stdout"] = redact_text(said.out.decode("utf-8", "replace")[:MAX_OUTPUT_CHARS])
    record["stderr"] = redact_text(said.err)
    return record
