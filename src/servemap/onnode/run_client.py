"""`run-client --spec FILE --out DIR`: run a load client of others and note when it said what.

The specification is a LoadSpec (`load_spec.py`) with one more key, `client`: `{"name", "argv",
"env", "cwd", "probe", "marks": {NAME: pattern}}`. The warm-up of the LoadSpec is sent first, by
servemap's own client, into DIR/warmup; then `probe` is asked for the client's version and clock, a
JSON object; then the client runs. Its lines go to DIR/lines.jsonl (`{"t_ns", "mono_ns", "text"}`),
the time of the first one that matches each pattern into `marks` of DIR/client.json, which is
written last. What the client measured stays in its own files below `cwd`; its segments and counts
are read from those by whoever has a parser for them.

Exit codes as of `bench`: 0 done, 1 the client did not do its job, 2 refused input, 3 not written.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .checked import SpecError
from .client_lines import Lines
from .end_loads import GRACE_S
from .files import read_spec
from .ident import Stat, all_stats, descendants, mark_of
from .load_clock import Anchor, take_anchor
from .load_output import WriteError, write_json
from .load_prompts import parse_target
from .load_run import SIGNALS, Run
from .load_spec import LoadSpec, parse_spec
from .sweep import end_found, running

CLIENT_MARK = "SERVEMAP_CLIENT"
PROBE_S = 60.0
POLL_S = 0.2
PROBE_WORDS = 300

Json = Dict[str, Any]
Cpu = Dict[Tuple[int, int], float]


class Client(NamedTuple):
    """How the client is started; see the head of this file."""

    name: str
    argv: List[str]
    env: Dict[str, str]
    cwd: str
    probe: List[str]
    marks: Dict[str, str]


class Job:
    """One run of a client; `execute` does it and returns client.json."""

    def __init__(self, spec: LoadSpec, client: Client, out: str) -> None:
        self._spec = spec
        self._client = client
        self._out = out
        self._anchor = take_anchor()
        self._deadline_s = time.monotonic() + spec.case_timeout_s
        self._signal: Optional[str] = None
        self._reasons: List[str] = []
        self._warmup: Optional[Json] = None
        self._probed: Json = {}
        self._exit: Optional[int] = None
        self._lines = Lines(out, self._anchor.epoch_ns, client.marks)
        self._cpu: Dict[str, Cpu] = {}

    def execute(self) -> Json:
        """Warm up, ask the client who it is, run it; raises WriteError."""
        kept = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            for step in (self._warm_up, self._ask, self._run):
                if not self._reasons:
                    step()
                if self._signal and self._signal not in self._reasons:
                    self._reasons.append(self._signal)
        # Whatever breaks, client.json must say so: without it the run looks killed.
        except Exception as error:  # noqa: BLE001
            self._reasons.append("internal: %s: %s" % (type(error).__name__, error))
        finally:
            self._end_rest()
            problem = self._lines.close()
            if problem:
                self._reasons.append("not written: %s" % problem)
        record = self._report()
        write_json(self._out, "client.json", record)
        for number, handler in kept.items():
            signal.signal(number, handler)
        return record

    def _warm_up(self) -> None:
        spec = self._spec
        if spec.warmup is None:
            return
        folder = os.path.join(self._out, "warmup")
        os.makedirs(folder, exist_ok=True)
        run = Run(
            spec._replace(segments=(spec.warmup,), warmup=None),
            parse_target(spec.url, spec.endpoint),
            None,
            folder,
        )
        run.execute()
        counts = run.client["counts"]
        self._warmup = {
            "ok": counts["ok"],
            "failed": counts["failed"] + counts["timed_out"],
            **{key: value for s in run.client["segments"] for key, value in _interval(s).items()},
        }
        self._reasons += run.client["reasons"]

    def _ask(self) -> None:
        """Ask the client's environment for its version; a client that is not there ends here."""
        client = self._client
        try:
            done = subprocess.run(
                client.probe,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=PROBE_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            words = error.strerror if isinstance(error, OSError) else "no answer in %g s" % PROBE_S
            self._missing("cannot be run: %s: %s" % (client.probe[0], words))
            return
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()
        try:
            self._probed = dict(json.loads(said[-1]))
        except (ValueError, TypeError, IndexError):
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no answer"]
            self._missing(
                "is not in the environment of %s: %s" % (client.probe[0], said[-1][:PROBE_WORDS])
            )

    def _missing(self, what: str) -> None:
        """Note that there is no such client, in the form of an error for people."""
        name = self._client.name
        self._reasons.append(
            "%s %s\n  where: clients.%s.python\n  remedy: install it there, or name the "
            "interpreter on the node of the load whose environment has it" % (name, what, name)
        )

    def _run(self) -> None:
        client = self._client
        os.makedirs(client.cwd, exist_ok=True)
        try:
            process = subprocess.Popen(
                client.argv,
                env=self._environment(),
                cwd=client.cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._reasons.append("%s cannot be started: %s" % (client.name, error))
            return
        assert process.stdout is not None
        self._lines.begin(process.stdout.fileno())
        ended_by = None
        # A child of the client may keep the pipe open when the client is gone.
        while ended_by is None and self._lines.read(POLL_S) and process.poll() is None:
            self._note_cpu(process.pid)
            if self._signal:
                ended_by = self._signal
            elif time.monotonic() > self._deadline_s:
                ended_by = "case timeout: %s did not end within %g s" % (
                    client.name,
                    self._spec.case_timeout_s,
                )
        if ended_by is not None:
            self._reasons.append(ended_by)
            _end(process)
        self._lines.rest()
        self._note_cpu(process.pid)
        try:
            self._exit = process.wait(max(GRACE_S, self._deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._reasons.append("%s closed its output and did not end" % client.name)
            self._exit = _end(process)
        if self._exit and ended_by is None:
            how = "exit code %d" % self._exit if self._exit > 0 else "signal %d" % -self._exit
            words = self._lines.words()
            self._reasons.append("%s ended with %s: %s" % (client.name, how, words or "no word"))

    def _note_cpu(self, pid: int) -> None:
        for name in self._lines.marks:
            if name not in self._cpu:
                self._cpu[name] = _cpu_of(pid)

    def _environment(self) -> Dict[str, str]:
        environment = dict(os.environ)
        environment.update(self._client.env)
        environment[CLIENT_MARK] = self._spec.load_id or self._out
        return environment

    def _end_rest(self) -> None:
        """End what the client left behind; its children inherited the mark."""
        mark = self._spec.load_id or self._out

        def left() -> List[Stat]:
            return [stat for stat in running() if mark_of(stat.pid, CLIENT_MARK) == mark]

        _, still = end_found(left, GRACE_S)
        if still:
            pids = ", ".join(str(stat.pid) for stat in still)
            self._reasons.append("processes of %s do not end: %s" % (self._client.name, pids))

    def _report(self) -> Json:
        end = take_anchor()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        client = self._client
        return {
            "schema": 1,
            "load_id": self._spec.load_id,
            "status": "failed" if self._reasons else "ok",
            "reasons": self._reasons,
            "started_ns": self._anchor.wall_ns,
            "ended_ns": end.mono_ns + self._anchor.epoch_ns,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "segments": [],
            "warmup": self._warmup,
            "counts": None,
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 6),
            "max_lag_ms": None,
            "clock": _clock(self._anchor, end),
            "client": {
                "name": client.name,
                "argv": client.argv,
                "exit_code": self._exit,
                **{key: self._probed.get(key) for key in ("version", "python", "perf_counter")},
            },
            "marks": self._lines.marks,
            "lines": self._lines.counts(),
            "window_cpu": _window_cpu(self._cpu, self._lines.marks),
        }

    def _on_signal(self, number: int, _frame: Optional[FrameType]) -> None:
        self._signal = SIGNALS[signal.Signals(number)]


def _interval(segment: Json) -> Json:
    return {"start_ns": segment["start_ns"], "end_ns": segment["end_ns"]}


def _clock(start: Anchor, end: Anchor) -> Json:
    return {
        "wall_ns": start.wall_ns,
        "mono_ns": start.mono_ns,
        # All times are of this anchor and the monotonic clock, which steps do not touch.
        "step_ns": end.epoch_ns - start.epoch_ns,
    }


def _end(process: "subprocess.Popen[bytes]") -> int:
    """End the client and its process group: TERM, a moment, KILL; return its exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(GRACE_S)
    return process.wait()


def _cpu_of(pid: int) -> Cpu:
    """Return the processor time so far, in seconds, of a process and of those below it."""
    stats = all_stats()
    tick = os.sysconf("SC_CLK_TCK")
    own = [stat for stat in stats if stat.pid == pid]
    return {(s.pid, s.start): (s.utime + s.stime) / tick for s in own + descendants(pid, stats)}


def _window_cpu(cpu: Dict[str, Cpu], marks: Dict[str, Json]) -> Optional[Json]:
    """Return the processor time between the marks `begin` and `end`: of all, of the busiest."""
    if not cpu.get("begin") or not cpu.get("end"):
        return None
    used = [seconds - cpu["begin"].get(key, 0.0) for key, seconds in cpu["end"].items()]
    return {
        "seconds": (marks["end"]["mono_ns"] - marks["begin"]["mono_ns"]) / 1e9,
        "cpu_s": round(sum(used), 3),
        "busiest_cpu_s": round(max(used, default=0.0), 3),
    }


def read_job(path: str, out: str) -> Job:
    """Read and check a specification; SpecError or ValueError says what is wrong with it."""
    raw = read_spec(path, {"client": dict})
    given = raw.pop("client")
    if set(given) != set(Client._fields):
        raise ValueError("the spec's client has other keys than %s" % ", ".join(Client._fields))
    return Job(parse_spec(raw), Client(**given), out)


def main(argv: List[str]) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="run-client")
    parser.add_argument("--spec", required=True, help="the specification")
    parser.add_argument("--out", required=True, help="folder for the results")
    options = parser.parse_args(argv)
    try:
        record = read_job(options.spec, options.out).execute()
    except (SpecError, ValueError) as error:
        return _complain(str(error), 2)
    except (WriteError, OSError) as error:
        return _complain("results not written: %s" % error, 3)
    if record["status"] != "ok":
        return _complain("; ".join(record["reasons"]), 1)
    return 0


def _complain(message: str, code: int) -> int:
    print("run-client: %s" % message, file=sys.stderr)
    return code
