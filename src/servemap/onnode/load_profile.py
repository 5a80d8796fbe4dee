"""Profiling a server while a segment runs: its profiler is started and stopped at known times.

Some engines must be told to stop also when all steps were taken (vLLM 0.32.0 answers 409 to a new
start otherwise), others call that an error (SGLang 0.5.23 answers 500): `stop_always` says which.
"""

import os
import threading
import time
from typing import Any, Dict, NamedTuple, Optional

from .ask import Reply, ask, shorten
from .checked import Table, refuse

ANSWER_S = 300.0
"""Longest that an answer is waited for: a stop answers when the traces are written."""

ENOUGH_FILE = "profile.enough"
"""Whoever sees that the traces are whole writes this beside the client's record."""

BEGUN_FILE = "profile.begun"
"""Written there when the time has come, where the profile is taken by somebody else."""

PROFILED = "profiled"
"""Why a segment ends before its requests do: nothing of it is a result."""

LOOK_S = 0.05


class Profile(NamedTuple):
    """In which segment, how long after its start, by which paths on the server's host.

    `settled`: the first wave is let through its prefill before, for as long as the slowest first
    token of the warm-up took. Without a `start` nobody is asked: `BEGUN_FILE` says that it is time.
    """

    segment: str
    after_s: float
    settled: bool
    start: Optional[str]
    body: Dict[str, Any]
    stop: Optional[str]
    stop_always: bool


def parse_profile(raw: Any) -> Optional[Profile]:
    """Check the key `profile` of a specification; raises SpecError."""
    if raw is None:
        return None
    table = Table(raw, "profile")
    body = table.get("body", {})
    outside = table.flag("outside", False)
    if not isinstance(body, dict):
        refuse("profile.body", body, "give the object that the server's profiler takes")
    profile = Profile(
        table.text("segment"),
        table.number("after_s", 0),
        table.flag("settled", False),
        None if outside else table.text("start"),
        body,
        None if outside else table.text("stop"),
        table.flag("stop_always", False),
    )
    table.finish()
    for key, path in (("start", profile.start), ("stop", profile.stop)):
        if path is None:
            continue
        if not path.startswith("/") or not path.isascii() or " " in path:
            refuse("profile." + key, path, "give the path on the server, e.g. /start_profile")
    return profile


class Profiling:
    """One profile, taken by a thread beside the load; `end` returns what happened, times in epoch.

    `enough` says why the segment may end: the traces are whole, or there will be none.
    """

    def __init__(
        self, profile: Profile, authority: str, api_key: Optional[str], out: str, epoch_ns: int
    ) -> None:
        self._profile = profile
        self._base = "http://" + authority
        self._api_key = api_key
        self._enough_file = os.path.join(out, ENOUGH_FILE)
        self._epoch_ns = epoch_ns
        self._over = threading.Event()
        self._done = False
        self._said: Dict[str, Any] = {"segment": profile.segment, "whole": False, "problem": None}
        self._thread = threading.Thread(target=self._take, name="profile", daemon=True)
        self._thread.start()

    def enough(self) -> Optional[str]:
        """Return why the segment may end now, None where it goes on."""
        return PROFILED if self._done else None

    def end(self) -> Dict[str, Any]:
        """Stop the profiler where it may still run; return the record.

        `start_ns` and `started_ns`: asked and answered; `whole_ns`: it was seen that the traces are
        there; `stop_ns` and `stopped_ns` where it had to be stopped; null where it did not happen.
        `refused_with`: the HTTP status of an answer that refused the start, null where none came.
        """
        self._over.set()
        self._thread.join()
        keys = ("start_ns", "started_ns", "whole_ns", "stop_ns", "stopped_ns")
        return {**dict.fromkeys(keys), **self._said}

    def _take(self) -> None:
        try:
            self._follow()
        finally:
            self._done = True

    def _follow(self) -> None:
        if self._over.wait(self._profile.after_s):
            self._said["problem"] = "the load ended before the profile was to begin"
            return
        if not self._begin():
            return
        while not self._over.wait(LOOK_S):
            if os.path.exists(self._enough_file):
                self._note("whole_ns")
                self._said["whole"] = True
                break
        stop = self._profile.stop
        if stop is None or (self._said["whole"] and not self._profile.stop_always):
            return
        self._note("stop_ns")
        reply = self._ask(stop, {})
        self._note("stopped_ns")
        if reply["error"] is not None:
            self._said["stop_error"] = shorten(reply["error"])

    def _begin(self) -> bool:
        """Start the profiler, or say that it is time; return whether the load goes on for it."""
        self._note("start_ns")
        start = self._profile.start
        if start is None:
            with open(os.path.join(os.path.dirname(self._enough_file), BEGUN_FILE), "w") as file:
                file.write("begun\n")
            return True
        reply = self._ask(start, self._profile.body)
        self._note("started_ns")
        if reply["error"] is not None:
            self._said["problem"] = "the profiler was not started: " + shorten(reply["error"])
            self._said["refused_with"] = reply["status"]
        return reply["error"] is None

    def _ask(self, path: str, body: Dict[str, Any]) -> Reply:
        return ask(self._base + path, ANSWER_S, body, bearer=self._api_key)

    def _note(self, key: str) -> None:
        self._said[key] = time.monotonic_ns() + self._epoch_ns
