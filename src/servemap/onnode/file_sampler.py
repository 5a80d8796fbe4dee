"""Samples of many small files of the kernel: /proc/pressure, counters of network devices."""

import glob
import time
from typing import Any, Dict, Iterable, List, Tuple

from .clock import epoch_ns
from .proc_sampler import OpenFile
from .sources import AbsentError

MAX_FILES = 4096


class FileSampler:
    """Takes one sample per call of `sample`; the files stay open until `close`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Open what matches the patterns (glob); AbsentError where nothing does.

        A file that cannot be opened is left out; OSError says why where that is true of all.
        """
        patterns = list(patterns)
        paths = sorted({path for pattern in patterns for path in glob.glob(pattern)})[:MAX_FILES]
        if not paths:
            raise AbsentError("no file on this node matches %s" % ", ".join(patterns))
        self._files: List[Tuple[str, OpenFile]] = []
        refused = None
        for path in paths:
            try:
                self._files.append((path, OpenFile(path)))
            except OSError as error:
                refused = error
        if refused is not None and not self._files:
            raise refused

    def sample(self) -> Dict[str, Any]:
        """Return `{"t_ns", "mono_ns", "ms", "text"}`, or `error` in place of the last two.

        `text` has `PATH:LINE` for every line of every file that could be read, as of `grep -H`.
        """
        record: Dict[str, Any] = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
        lines: List[str] = []
        reason = "the files are empty"
        for path, opened in self._files:
            try:
                text = opened.read()
            except OSError as error:
                reason = "%s: %s" % (path, error.strerror or error)
                continue
            lines.extend("%s:%s\n" % (path, line) for line in text.splitlines())
        if lines:
            record["ms"] = (time.monotonic_ns() - record["mono_ns"]) / 1e6
            record["text"] = "".join(lines)
        else:
            record["error"] = reason
        return record

    def close(self) -> None:
        """Close all files."""
        for _path, opened in self._files:
            opened.close()
