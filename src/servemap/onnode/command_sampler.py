"""Samples of a command that prints once and ends, run again for each sample."""

import glob
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional

from .clock import epoch_ns
from .proc_sampler import tree
from .sources import AbsentError, tool_environment

ANSWER_S = 5.0
MAX_TEXT_BYTES = 16 << 20
PIDS = "{pids}"
PID = "{pid}"
EACH = "{each}"
INTERFACES = "interfaces"


def with_pids(argv: List[str], roots: List[int]) -> List[str]:
    """Return a command with the pids of a server's process tree: by commas for `{pids}` in a word,
    a word of each for `{pid}`.

    AbsentError where it wants them and no such process is known. Processes that are started later
    are not among them.
    """
    if not any(PIDS in word or word == PID for word in argv):
        return argv
    pids = [pid for pid in tree(roots) if os.path.exists("/proc/%d" % pid)]
    if not pids:
        raise AbsentError("the server's processes are not known on this node")
    words = list(map(str, pids))
    return [
        filled
        for word in argv
        for filled in (words if word == PID else [word.replace(PIDS, ",".join(words))])
    ]


def interfaces() -> List[str]:
    """Return the network interfaces of real devices that are up."""
    found = []
    for path in sorted(glob.glob("/sys/class/net/*/device")):
        name = path.split("/")[4]
        with suppress(OSError), open("/sys/class/net/%s/operstate" % name) as handle:
            if handle.read().strip() == "up":
                found.append(name)
    return found


class CommandSampler:
    """Runs a command once per call of `sample`, or once for each thing that it is asked about."""

    def __init__(
        self, argv: List[str], each: Optional[str], keep: List[str], any_status: bool = False
    ) -> None:
        """Args:
            argv: the command; `{each}` in it is replaced.
            each: `interfaces` for one call per network interface, None for one call.
            keep: a line is kept that has one of these words in it; every line if empty.
            any_status: whether what it printed is taken though it ended with another status than 0.

        AbsentError where there is nothing to ask about.
        """
        self._argv = argv
        self._keep = keep
        self._any_status = any_status
        self._things: List[Optional[str]] = [None]
        if each == INTERFACES:
            self._things = list(interfaces())
            if not self._things:
                raise AbsentError("no network interface of a real device is up on this node")
        self._first = True

    def sample(self) -> List[Dict[str, Any]]:
        """Return a record of each call: `{"t_ns", "mono_ns", "ms", "text"}` and `of` what it is.

        `error` stands in place of `ms` and `text` where the command failed. A thing of which the
        first call says nothing is not asked again; AbsentError where that is true of all.
        """
        records = [self._ask(thing) for thing in self._things]
        if self._first and self._things != [None]:
            told = [record for record in records if "error" not in record]
            if not told:
                raise AbsentError(str(records[0]["error"]))
            records, self._things = told, [record["of"] for record in told]
        self._first = False
        return records

    def close(self) -> None:
        """Nothing is left open between calls."""

    def _ask(self, thing: Optional[str]) -> Dict[str, Any]:
        argv = [word.replace(EACH, thing or "") for word in self._argv]
        record: Dict[str, Any] = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
        if thing is not None:
            record["of"] = thing
        process = subprocess.Popen(
            argv,
            env=tool_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            record["error"] = "%s gave no answer in %g s" % (argv[0], ANSWER_S)
            return record
        failed = process.returncode != 0 and not (self._any_status and out.strip())
        if failed or len(out) > MAX_TEXT_BYTES:
            said = (err or out).decode("utf-8", "replace").strip().splitlines()
            last = said[-1][:300] if said else "nothing"
            if len(out) > MAX_TEXT_BYTES:
                last = "more than %d bytes" % MAX_TEXT_BYTES
            record["error"] = "status %d: %s" % (process.returncode, last)
            return record
        record["ms"] = (time.monotonic_ns() - record["mono_ns"]) / 1e6
        record["text"] = self._kept(out.decode("utf-8", "replace"))
        return record

    def _kept(self, said: str) -> str:
        if not self._keep:
            return said
        lines = said.splitlines(True)
        return "".join(line for line in lines if any(word in line for word in self._keep))
