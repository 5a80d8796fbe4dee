"""One collector of the spec: what it reads, its thread, its file and what became of it."""

import json
import os
import threading
import time
from contextlib import closing
from typing import Any, Callable, Dict, Iterable, List, Optional

from .clock import epoch_ns
from .command_sampler import CommandSampler, with_pids
from .file_sampler import FileSampler
from .log_source import LogSource
from .proc_sampler import ProcSampler
from .sources import (
    AbsentError,
    Budget,
    CommandSource,
    HttpSource,
    TooMuchError,
    find_program,
    is_simulated,
)

KIND_KEYS = {
    "proc": ("root_pids", "interval_s"),
    "http": ("url", "interval_s"),
    "files": ("paths", "interval_s"),
    "poll": ("argv", "interval_s"),
    "command": ("argv",),
    "log": ("path", "keep"),
}
# A load waits so long at most for the first line of a command, or its first answer.
FIRST_LINE_S = 3.0
# One run of a tool may fail for a reason that passes.
FAILING_RUNS = 3


class Sink:
    """A JSON-lines file that is complete up to its last line whenever we are killed."""

    def __init__(self, path: str) -> None:
        self._handle = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for life

    def write(self, record: Dict[str, Any]) -> int:
        """Append one record and return its length; OSError when the disk is full."""
        line = json.dumps(record, separators=(",", ":")) + "\n"
        self._handle.write(line)
        self._handle.flush()
        return len(line)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


class Collector:
    """One collector of the spec: its thread, its file and what became of it."""

    def __init__(self, spec: Dict[str, Any], out: str, stop: threading.Event) -> None:
        self.name: str = spec["name"]
        self._spec = spec
        self._out = out
        self._stop = stop
        self.sampled = threading.Event()
        # What a tool says whose last runs all failed; None while it answers.
        self.failing: Optional[str] = None
        self._failed_runs = 0
        self._budget = Budget()
        self.record: Dict[str, Any] = {
            "status": "ok",
            "samples": 0,
            "errors": 0,
            "interval_s": spec.get("interval_s"),
            "started_ns": epoch_ns(),
            "ended_ns": None,
            "error": None,
        }
        self.thread = threading.Thread(target=self._guarded, name=self.name, daemon=True)

    def _guarded(self) -> None:
        waiting = threading.Timer(FIRST_LINE_S, self.sampled.set)
        waiting.daemon = True
        try:
            sink = Sink(os.path.join(self._out, self.name + ".jsonl"))
            try:
                if self._spec["kind"] in ("command", "poll"):
                    waiting.start()
                self._run(sink)
            finally:
                sink.close()
                waiting.cancel()
        except AbsentError as error:
            self.record.update(status="absent", error=str(error))
        except TooMuchError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - one collector must not end the others
            self._fail("%s: %s" % (type(error).__name__, error))
        # A server may well write nothing of the kind for a while.
        silent = not self.record["samples"] and self._spec["kind"] != "log"
        if self.record["status"] == "ok" and silent:
            self.record["status"] = "failed"
            self.record["error"] = self.record["error"] or "no sample was taken"
        elif self.record["status"] == "ok" and self.failing is not None:
            self._fail(self.failing)
        elif self.record["status"] == "ok":
            self.record["error"] = None
        self.record["ended_ns"] = epoch_ns()
        self.sampled.set()

    def _run(self, sink: Sink) -> None:
        kind = self._spec["kind"]
        if kind == "command":
            self._follow(sink)
        elif kind == "log":
            log = LogSource(self._spec["path"], self._spec["keep"], self._stop)
            self.sampled.set()
            for record in log.lines():
                self._keep(sink, record)
        elif kind == "http":
            http = HttpSource(self._spec["url"])
            self._poll(sink, lambda: [http.sample()], http.close)
        elif kind == "files":
            files = FileSampler(self._spec["paths"])
            self._poll(sink, lambda: [files.sample()], files.close)
        elif kind == "poll":
            argv = with_pids(self._spec["argv"], self._spec.get("pids", []))
            self._refuse_twin()
            self._know(argv[0])
            asked = CommandSampler(
                [self.record["program"], *argv[1:]],
                self._spec.get("each"),
                self._spec.get("keep", []),
                self._stop,
                self._spec.get("any_status", False),
            )
            self._poll(sink, asked.sample, asked.close)
        else:
            proc = ProcSampler(self._spec["root_pids"])
            self._poll(sink, lambda: [proc.sample()], proc.close)

    def _poll(
        self,
        sink: Sink,
        sample: Callable[[], Iterable[Dict[str, Any]]],
        close: Callable[[], None],
    ) -> None:
        interval_s = self._spec["interval_s"]
        due_s = time.monotonic()
        try:
            stopping = False
            while not stopping:
                stopping = self._stop.is_set()
                records = list(sample())
                for record in records:
                    self._keep(sink, record)
                if self._spec["kind"] == "poll":
                    self._note_run(records)
                self.sampled.set()
                # Ticks stay on the grid of the first one; those that a slow sample missed are lost.
                late_s = time.monotonic() - due_s
                due_s += interval_s * (int(late_s / interval_s) + 1)
                if not stopping:
                    self._stop.wait(due_s - time.monotonic())
        finally:
            close()

    def _note_run(self, records: List[Dict[str, Any]]) -> None:
        failed = [record["error"] for record in records if "error" in record]
        if len(failed) < len(records) or not records:
            self._failed_runs, self.failing = 0, None
            return
        self._failed_runs += 1
        if self._failed_runs >= FAILING_RUNS:
            self.failing = "the last %d runs failed: %s" % (self._failed_runs, failed[-1])

    def _follow(self, sink: Sink) -> None:
        self._refuse_twin()
        choices = [self._spec["argv"], *self._spec.get("otherwise", [])]
        while not self._command_ran(sink, choices.pop(0), last=not choices):
            continue

    def _refuse_twin(self) -> None:
        """Give way to a program that tells the same for less."""
        twin = self._spec.get("unless")
        if twin is not None:
            try:
                find_program(twin)
            except AbsentError:
                return
            raise AbsentError("%s is on this node and tells the same" % twin)

    def _know(self, name: str) -> None:
        """Note which program it is; AbsentError where the node has none of that name."""
        self.record["program"] = find_program(name)
        if is_simulated(self.record["program"]):
            self.record["simulated"] = True

    def _command_ran(self, sink: Sink, argv: List[str], last: bool) -> bool:
        """Follow a command to its end; False where it refused its options and is not the last."""
        argv = with_pids(argv, self._spec.get("pids", []))
        self._know(argv[0])
        source = CommandSource(
            [self.record["program"], *argv[1:]],
            os.path.join(self._out, self.name + ".stderr.log"),
            self._stop,
        )
        with closing(source.lines()) as lines:
            for record in lines:
                self._keep(sink, record)
                if source.count > 1 or last:
                    self.sampled.set()
        if self._stop.is_set():
            return True
        if not last and source.count <= 1:
            return False
        self._fail(source.ending())
        return True

    def _keep(self, sink: Sink, record: Dict[str, Any]) -> None:
        self._budget.spend(sink.write(record))
        if "error" in record:
            self.record["errors"] += 1
            self.record["error"] = record["error"]
        else:
            self.record["samples"] += 1

    def _fail(self, error: str) -> None:
        self.record["status"] = "failed"
        self.record["error"] = error


def check_collectors(collectors: List[Any]) -> None:
    """Refuse a list of collectors that cannot all be run; ValueError names the first bad one."""
    names = set()
    for collector in collectors:
        name = collector.get("name") if isinstance(collector, dict) else None
        if not isinstance(name, str) or not name or os.sep in name or name in names:
            raise ValueError("collector %r lacks a name of its own" % (collector,))
        names.add(name)
        keys = KIND_KEYS.get(collector.get("kind"))
        if keys is None:
            raise ValueError("collector %s has the unknown kind %r" % (name, collector.get("kind")))
        missing = [key for key in keys if key not in collector]
        if missing:
            raise ValueError("collector %s lacks %s" % (name, ", ".join(missing)))
        interval_s = collector.get("interval_s", 1)
        if not isinstance(interval_s, (int, float)) or not interval_s > 0:
            raise ValueError("collector %s has the interval %r" % (name, interval_s))
