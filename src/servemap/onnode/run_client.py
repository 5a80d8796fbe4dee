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
import tempfile
import time
from types import FrameType
from typing import IO, Any, Dict, List, NamedTuple, Optional

from .checked import SpecError
from .client_lines import Lines
from .client_process import TIMEOUT, Cpu, await_end, see_through, window_cpu
from .end_loads import GRACE_S
from .files import read_spec
from .ident import Stat, mark_of
from .load_clock import Anchor, take_anchor
from .load_flush import empty_cache, why_kept
from .load_output import WriteError, write_json
from .load_prompts import parse_target
from .load_run import SIGNALS, Run
from .load_spec import LoadSpec, parse_spec
from .sweep import end_found, running

CLIENT_MARK = "SERVEMAP_CLIENT"
PROBE_S = 60.0
PROBE_WORDS = 300
PROBE_BYTES = 65536

Json = Dict[str, Any]


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
        self._flushes: List[Json] = []
        self._probed: Json = {}
        self._exit: Optional[int] = None
        self._lines = Lines(out, self._anchor.epoch_ns, client.marks)
        self._cpu: Dict[str, Cpu] = {}

    def execute(self) -> Json:
        """Warm up, ask the client who it is, run it; raises WriteError."""
        kept = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            for step in (self._warm_up, self._ask, self._empty_cache, self._run):
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
            spec._replace(segments=(spec.warmup,), warmup=None, flush=None),
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
        with contextlib.ExitStack() as stack:
            out, err = (
                stack.enter_context(tempfile.TemporaryFile(dir=self._out)) for _ in range(2)
            )
            try:
                process = subprocess.Popen(
                    client.probe,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                self._missing("cannot be run: %s: %s" % (client.probe[0], _words(error)))
                return
            ended_by = await_end(process, time.monotonic() + PROBE_S, lambda: self._signal)
            if ended_by == TIMEOUT:
                self._missing("cannot be run: %s: no answer in %g s" % (client.probe[0], PROBE_S))
            if ended_by is not None:
                return
            answer, complaint = _last_line(out), _last_line(err)
        try:
            self._probed = dict(json.loads(answer))
        except (ValueError, TypeError, RecursionError):
            words = complaint[:PROBE_WORDS] or "no answer"
            self._missing("is not in the environment of %s: %s" % (client.probe[0], words))

    def _empty_cache(self) -> None:
        """Empty the server's prefix cache, if the case asks for it."""
        spec = self._spec
        if spec.flush is None:
            return
        done = empty_cache(
            "main",
            parse_target(spec.url, spec.endpoint).authority,
            spec.flush,
            None,
            self._deadline_s,
            lambda: self._signal,
            self._anchor.epoch_ns,
        )
        self._flushes.append(done)
        problem = why_kept(done)
        self._reasons += [] if problem is None else [problem]

    def _missing(self, what: str) -> None:
        """Note that there is no such client, in the form of an error for people."""
        name = self._client.name
        self._reasons.append(
            "%s %s\n  where: clients.%s.python\n  remedy: install it there, or name the "
            "interpreter on the node of the load whose environment has it" % (name, what, name)
        )

    def _run(self) -> None:
        client = self._client
        try:
            os.makedirs(client.cwd, exist_ok=True)
            ended = see_through(
                client.argv,
                self._environment(),
                client.cwd,
                self._lines,
                self._deadline_s,
                lambda: self._signal,
            )
        except (OSError, ValueError) as error:
            self._reasons.append("%s cannot be started: %s" % (client.name, error))
            return
        self._exit, self._cpu = ended.exit_code, ended.cpu
        if ended.ended_by == TIMEOUT:
            self._reasons.append(
                "case timeout: %s did not end within %g s"
                % (client.name, self._spec.case_timeout_s)
            )
        elif self._exit and ended.ended_by is None:
            how = "exit code %d" % self._exit if self._exit > 0 else "signal %d" % -self._exit
            words = self._lines.words()
            self._reasons.append("%s ended with %s: %s" % (client.name, how, words or "no word"))

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
            **({} if self._spec.flush is None else {"flushes": self._flushes}),
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
            "window_cpu": window_cpu(self._cpu, self._lines.marks),
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


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _last_line(file: IO[bytes]) -> str:
    """Return the last line that a program wrote to a file; empty where it wrote none."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - PROBE_BYTES))
    said = file.read().decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else ""


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
