"""Reading a machine that may lack anything: what is missing is a reason, never an exception."""

import os
import shutil
import signal
import subprocess
import uuid
from contextlib import suppress
from typing import Any, Dict, List, Optional

from .redact import redact_text

TOOL_TIMEOUT_S = 15.0
MAX_OUTPUT_CHARS = 1 << 20
# What it leaves in a session of its own: without root, a process that holds its namespace for ever.
LEAVING = "podman"
TOOL_MARK = "SERVEMAP_TOOL"


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

    What podman leaves running is ended.

    Returns:
        `{"argv", "code", "stdout", "stderr"}`, or `{"argv", "error"}` where it is not there,
        cannot be started or does not end in time.
    """
    record: Dict[str, Any] = {"argv": argv}
    if shutil.which(argv[0]) is None:
        away = "no such program: %s" if os.sep in argv[0] else "%s is not on PATH"
        record["error"] = away % argv[0]
        return record
    mark = uuid.uuid4().hex
    try:
        process = subprocess.Popen(
            argv,
            env=dict(os.environ, **{"LC_ALL": "C", TOOL_MARK: mark}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        record["error"] = "cannot be started: %s" % error.strerror
        return record
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        record["error"] = "did not end within %g s" % timeout_s
        return record
    finally:
        if LEAVING in argv:
            end_marked(mark)
    record["code"] = process.returncode
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        record[name] = redact_text(data.decode("utf-8", "replace")[:MAX_OUTPUT_CHARS])
    return record


def end_marked(mark: str) -> None:
    """Kill the processes that inherited the mark of a tool."""
    wanted = ("%s=%s" % (TOOL_MARK, mark)).encode()
    for name in filter(str.isdigit, list_folder("/proc")):
        with suppress(OSError):
            with open("/proc/%s/environ" % name, "rb") as handle:
                marked = wanted in handle.read().split(b"\0")
            if marked:
                os.kill(int(name), signal.SIGKILL)
