"""Samples of a command that prints once and ends, run again for each sample."""

import glob
import os
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional

from .clock import answered, epoch_ns
from .proc_sampler import tree
from .sources import AbsentError
from .tool import run

ANSWER_S = 5.0
MAX_TEXT_BYTES = 8 << 20
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
        self,
        argv: List[str],
        each: Optional[str],
        keep: List[str],
        stop: threading.Event,
        any_status: bool = False,
    ) -> None:
        """Args:
            argv: the command; `{each}` in it is replaced.
            each: `interfaces` for one call per network interface, None for one call.
            keep: a line is kept that has one of these words in it; every line if empty.
            stop: once it is set, all that is asked takes ANSWER_S together.
            any_status: whether what it printed is taken though it ended with another status than 0.

        AbsentError where there is nothing to ask about.
        """
        self._argv = argv
        self._keep = keep
        self._stop = stop
        self._stop_by_s: Optional[float] = None
        self._any_status = any_status
        self._things: List[Optional[str]] = [None]
        if each == INTERFACES:
            self._things = list(interfaces())
            if not self._things:
                raise AbsentError("no network interface of a real device is up on this node")
        self._first = True

    def sample(self) -> List[Dict[str, Any]]:
        """Return a record of each call: `{"t_ns", "mono_ns", "ms", "text"}` and `of` what it is.

        The time is the middle of question and answer (see `answered`). `error` stands in place of
        `ms` and `text` where the command failed. A thing of which the first call says nothing is
        not asked again; AbsentError where that is true of all.
        """
        records = []
        for thing in self._things:
            limit_s = self._limit_s()
            if limit_s > 0:
                records.append(self._ask(thing, limit_s))
        if self._first and self._things != [None] and records:
            told = [record for record in records if "error" not in record]
            if not told:
                raise AbsentError(str(records[0]["error"]))
            records, self._things = told, [record["of"] for record in told]
        self._first = False
        return records

    def close(self) -> None:
        """Nothing is left open between calls."""

    def _limit_s(self) -> float:
        """Return how many seconds the next answer may take; 0 or less where it is too late."""
        if not self._stop.is_set():
            return ANSWER_S
        now_s = time.monotonic()
        if self._stop_by_s is None:
            self._stop_by_s = now_s + ANSWER_S
        return self._stop_by_s - now_s

    def _ask(self, thing: Optional[str], limit_s: float) -> Dict[str, Any]:
        argv = [word.replace(EACH, thing or "") for word in self._argv]
        record: Dict[str, Any] = {"t_ns": epoch_ns(), "mono_ns": time.monotonic_ns()}
        if thing is not None:
            record["of"] = thing
        said = run(argv, limit_s, MAX_TEXT_BYTES)
        if said.code is None:
            record["error"] = "%s gave no answer in %.3g s" % (argv[0], limit_s)
            if said.too_much:
                record["error"] = "%s printed more than %d bytes" % (argv[0], MAX_TEXT_BYTES)
            return record
        out = said.out.decode("utf-8", "replace")
        if said.code != 0 and not (self._any_status and out.strip()):
            lines = (said.err or out).strip().splitlines()
            last = lines[-1][:300] if lines else "nothing"
            record["error"] = "status %d: %s" % (said.code, last)
            return record
        answered(record)
        record["text"] = self._kept(out)
        return record

    def _kept(self, said: str) -> str:
        if not self._keep:
            return said
        lines = said.splitlines(True)
        return "".join(line for line in lines if any(word in line for word in self._keep))
