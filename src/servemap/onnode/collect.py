"""`collect --spec FILE`: sample telemetry on a node until told to stop.

Spec (JSON): `{"schema": 1, "out": DIR, "node": NAME, "ready_file": FILE, "collectors": [...]}` and
optionally `"renew": FILE`, a heartbeat that is touched while sampling goes on, `"until": FILE`,
whose appearance ends it as SIGTERM does, `"server": {"pids": [...], "gone_s": N}`, whose end ends
it N seconds later, `"max_s": N`, after which it ends in any case, and `"load_id": TEXT`, which
its record repeats.
Collectors are of kind `proc` (root_pids, interval_s), `http` (url, interval_s), `files` (paths,
which are glob patterns, interval_s) and `command` (argv, and `otherwise`: more of them, for tools
that do not know every option; each is tried where the one before it ended without a second line).
One whose program or files are not on the node ends as `absent`. Each writes OUT/NAME.jsonl; every
line carries t_ns (epoch) and mono_ns. The ready file holds one instant on both clocks, from which
the lines' times can be rebuilt after a step of the first. SIGTERM takes one last sample of the
polled ones; OUT/collectors.json is written last.
"""

import argparse
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List

from .clock import epoch_ns
from .file_sampler import FileSampler
from .files import read_spec, write_json_atomic
from .load_clock import Anchor, take_anchor
from .proc_sampler import ProcSampler
from .sources import AbsentError, CommandSource, HttpSource, find_program, is_simulated
from .watched import Watched

SPEC_KEYS = {"out": str, "node": str, "ready_file": str, "collectors": list}
KIND_KEYS = {
    "proc": ("root_pids", "interval_s"),
    "http": ("url", "interval_s"),
    "files": ("paths", "interval_s"),
    "command": ("argv",),
}
# A collector that does not end in this time after a stop is recorded as failed.
STOP_S = 15.0
# A load waits so long at most for the first line of a command.
FIRST_LINE_S = 3.0


class Sink:
    """A JSON-lines file that is complete up to its last line whenever we are killed."""

    def __init__(self, path: str) -> None:
        self._handle = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for life

    def write(self, record: Dict[str, Any]) -> None:
        """Append one record; OSError when the disk is full."""
        self._handle.write(json.dumps(record, separators=(",", ":")) + "\n")
        self._handle.flush()

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
        try:
            sink = Sink(os.path.join(self._out, self.name + ".jsonl"))
            try:
                self._run(sink)
            finally:
                sink.close()
        except AbsentError as error:
            self.record.update(status="absent", error=str(error))
        except Exception as error:  # noqa: BLE001 - one collector must not end the others
            self._fail("%s: %s" % (type(error).__name__, error))
        if self.record["status"] == "ok" and not self.record["samples"]:
            self.record["status"] = "failed"
            self.record["error"] = self.record["error"] or "no sample was taken"
        elif self.record["status"] == "ok":
            self.record["error"] = None
        self.record["ended_ns"] = epoch_ns()
        self.sampled.set()

    def _run(self, sink: Sink) -> None:
        kind = self._spec["kind"]
        if kind == "command":
            self._follow(sink)
        elif kind == "http":
            http = HttpSource(self._spec["url"])
            self._poll(sink, http.sample, http.close)
        elif kind == "files":
            files = FileSampler(self._spec["paths"])
            self._poll(sink, files.sample, files.close)
        else:
            proc = ProcSampler(self._spec["root_pids"])
            self._poll(sink, proc.sample, proc.close)

    def _poll(
        self, sink: Sink, sample: Callable[[], Dict[str, Any]], close: Callable[[], None]
    ) -> None:
        interval_s = self._spec["interval_s"]
        due_s = time.monotonic()
        try:
            stopping = False
            while not stopping:
                stopping = self._stop.is_set()
                self._keep(sink, sample())
                self.sampled.set()
                # Ticks stay on the grid of the first one; those that a slow sample missed are lost.
                late_s = time.monotonic() - due_s
                due_s += interval_s * (int(late_s / interval_s) + 1)
                if not stopping:
                    self._stop.wait(due_s - time.monotonic())
        finally:
            close()

    def _follow(self, sink: Sink) -> None:
        waiting = threading.Timer(FIRST_LINE_S, self.sampled.set)
        waiting.daemon = True
        waiting.start()
        try:
            choices = [self._spec["argv"], *self._spec.get("otherwise", [])]
            while not self._command_ran(sink, choices.pop(0), last=not choices):
                continue
        finally:
            waiting.cancel()

    def _command_ran(self, sink: Sink, argv: List[str], last: bool) -> bool:
        """Follow a command to its end; False where it refused its options and is not the last."""
        program = find_program(argv[0])
        self.record["program"] = program
        if is_simulated(program):
            self.record["simulated"] = True
        source = CommandSource(
            [program, *argv[1:]],
            os.path.join(self._out, self.name + ".stderr.log"),
            self._stop,
        )
        for record in source.lines():
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
        sink.write(record)
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


def catch_stop() -> int:
    """Return a file descriptor that turns readable when we are told to stop."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return readable


def watch(collectors: List[Collector], spec: Dict[str, Any], told: int, anchor: Anchor) -> None:
    """Return when it is time to end; keep the ready file, the heartbeat and the early ends."""
    deadline_s = time.monotonic() + spec.get("max_s", float("inf"))
    server = Watched(**spec.get("server", {"pids": [], "gone_s": 0.0}))
    events = Sink(os.path.join(spec["out"], "collect.events.jsonl"))
    reported = set()
    ready = False
    while True:
        if not ready and all(collector.sampled.is_set() for collector in collectors):
            write_json_atomic(
                spec["ready_file"],
                {"pid": os.getpid(), "t_ns": anchor.wall_ns, "mono_ns": anchor.mono_ns},
            )
            ready = True
        for collector in collectors:
            if not collector.thread.is_alive() and collector.name not in reported:
                reported.add(collector.name)
                events.write(
                    {
                        "t_ns": collector.record["ended_ns"],
                        "collector": collector.name,
                        "event": "exited",
                        "error": collector.record["error"],
                    }
                )
        if time.monotonic() > deadline_s or server.gone():
            break
        if "renew" in spec:
            renew(spec["renew"])
        if "until" in spec and ready and os.path.exists(spec["until"]):
            break
        if select.select([told], [], [], 0.5 if ready else 0.02)[0]:
            break
    events.close()


def renew(path: str) -> None:
    """Touch a heartbeat, so that what is measured outlives a controller that died."""
    with suppress(OSError):
        os.utime(path)


def cpu_s() -> float:
    """Return the CPU seconds used so far by this process and by its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def summary(
    spec: Dict[str, Any], collectors: List[Collector], used_s: float, wall_s: float, step_ns: int
) -> Dict[str, Any]:
    """Return the contents of collectors.json.

    `self` is the cost of collecting itself, `clock.step_ns` how far the node's clock was set while
    they ran.
    """
    return {
        "schema": 1,
        "node": spec["node"],
        "load_id": spec.get("load_id"),
        "self": {"cpu_s": used_s, "wall_s": wall_s},
        "clock": {"step_ns": step_ns},
        "collectors": {collector.name: collector.record for collector in collectors},
    }


def collect(spec: Dict[str, Any]) -> int:
    """Run the collectors of a spec until a stop; 0, whatever became of single collectors."""
    started_s, started_cpu_s = time.monotonic(), cpu_s()
    anchor = take_anchor()
    told = catch_stop()
    os.makedirs(spec["out"], exist_ok=True)
    stop = threading.Event()
    collectors = [Collector(one, spec["out"], stop) for one in spec["collectors"]]
    for collector in collectors:
        collector.thread.start()
    try:
        watch(collectors, spec, told, anchor)
    finally:
        stop.set()
        deadline_s = time.monotonic() + STOP_S
        for collector in collectors:
            collector.thread.join(max(0.0, deadline_s - time.monotonic()))
            if collector.thread.is_alive():
                collector.record.update(status="failed", error="did not end when told to stop")
        path = os.path.join(spec["out"], "collectors.json")
        used_s, wall_s = cpu_s() - started_cpu_s, time.monotonic() - started_s
        step_ns = take_anchor().epoch_ns - anchor.epoch_ns
        write_json_atomic(path, summary(spec, collectors, used_s, wall_s, step_ns))
    return 0


def main(argv: List[str]) -> int:
    """Run `collect --spec FILE`; 2 on a bad spec, 3 when results cannot be written."""
    parser = argparse.ArgumentParser(prog="collect")
    parser.add_argument("--spec", required=True)
    arguments = parser.parse_args(argv)
    try:
        spec = read_spec(arguments.spec, SPEC_KEYS)
        check_collectors(spec["collectors"])
    except ValueError as error:
        print("collect: %s" % error, file=sys.stderr)
        return 2
    try:
        return collect(spec)
    except OSError as error:
        print("collect: %s" % error, file=sys.stderr)
        return 3
