"""One load run: prepare, warm up, run the segments, keep what came, say how it went."""

import os
import platform
import resource
import signal
import socket
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

from .checked import SpecError
from .load_call import Lane, prepare_all
from .load_chat import Chat, measure_sizing, shortest, sizing_words, words_for
from .load_clock import take_anchor
from .load_conn import Address
from .load_flush import empty_cache, why_kept
from .load_lanes import make_lanes, renderer
from .load_late import Lateness
from .load_loop import Loop, Window
from .load_output import RequestLog, WriteError, write_json
from .load_profile import PROFILED, Profiling
from .load_prompts import Target
from .load_records import recorded
from .load_spec import LoadSpec, Segment, Stream
from .load_summary import Figures, figures

# Requests are serialised ahead up to this many bytes; the rest is made in spare time.
PREPARED_BYTES = 256 * 2**20
PROBE_S = 5.0
SIGNALS = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}


class Run:
    """A run of one specification; `execute` does it, the rest tells how it went.

    `client` is client.json, `found` the good measured requests' figures, `lags_s` how long after
    their set times requests were sent; `errors` counts the failed ones by class, each with the
    first message.
    """

    def __init__(self, spec: LoadSpec, target: Target, api_key: Optional[str], out: str) -> None:
        self.client: Dict[str, Any] = {}
        self.found: List[Figures] = []
        self.lags_s: List[float] = []
        self._spec = spec
        self._target = target
        self._api_key = api_key
        self._out = out
        self._anchor = take_anchor()
        self._deadline_ns = self._anchor.mono_ns + int(spec.case_timeout_s * 1e9)
        self._signal: Optional[str] = None
        self._keep_alive = True
        self._reasons: List[str] = []
        self._segments: List[Dict[str, Any]] = []
        self._warmup: Optional[Dict[str, int]] = None
        self._flushes: List[Dict[str, Any]] = []
        self._flush_before = flushed(spec)
        self._profiling: Optional[Profiling] = None
        self._profiled: Optional[Dict[str, Any]] = None
        self._slowest_first_s = 0.0
        self._counts = dict.fromkeys(("sent", "ok", "failed", "timed_out", "retried"), 0)
        self.errors: Dict[str, Tuple[int, str]] = {}
        self._cpu_s = 0.0
        self._max_lag_ns = 0
        self._late = Lateness()
        self._waited_s: Optional[float] = 0.0
        self._cpu_share = 0.0
        self._render = renderer(spec, target, api_key)
        self._words: Dict[int, int] = {}
        self._sizing: Optional[Dict[str, float]] = None
        self._lanes = make_lanes(spec, self._render, self._size_of)

    def execute(self) -> None:
        """Run everything and write client.json; raises WriteError."""
        kept = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        unwritten: Optional[WriteError] = None
        try:
            log = RequestLog(self._out)
            try:
                self._measure(log)
            finally:
                log.close()
        except WriteError as error:
            unwritten = error
            self._reasons.append(f"not written: {error}")
        # Whatever breaks, client.json must say so: without it the run looks killed.
        except Exception as error:  # noqa: BLE001
            self._reasons.append(f"internal: {type(error).__name__}: {error}")
        if self._signal and self._signal not in self._reasons:
            self._reasons.append(self._signal)
        if not self._counts["sent"] and not self._reasons:
            first = next(iter(self.errors.values()), (0, "no reason known"))[1]
            self._reasons.append(f"nothing was sent: {first}")
        self.client = self._report()
        write_json(self._out, "client.json", self.client)
        for number, handler in kept.items():
            signal.signal(number, handler)
        if unwritten is not None:
            raise unwritten

    def _measure(self, log: RequestLog) -> None:
        _raise_file_limit()
        address, problem = find_address(self._target)
        if address is None:
            self._reasons.append(problem)
            return
        lanes = [lane for lanes in self._lanes.values() for lane in lanes]
        if self._spec.chat is not None:
            try:
                self._size(address, self._spec.chat, log)
            except SpecError as error:
                self._reasons.append(str(error))
                return
        # Timed requests first: they are the ones that must not be made while the clock runs.
        prepare_all(sorted(lanes, key=lambda lane: lane.closed), PREPARED_BYTES)
        if self._spec.warmup is not None:
            if not self._empty_cache(self._spec.warmup):
                return
            window = self._window(address, self._spec.warmup, 0)
            statuses = self._record(log, window, self._spec.warmup, warmup=True)
            self._warmup = {
                "start_ns": window.start_ns + self._anchor.epoch_ns,
                "end_ns": window.end_ns + self._anchor.epoch_ns,
                "ok": statuses.count("ok"),
                "failed": len(statuses) - statuses.count("ok"),
            }
        for segment in self._spec.segments:
            if self._reasons or self._signal or not self._empty_cache(segment):
                return
            window = self._window(address, segment, int(self._spec.min_window_s * 1e9))
            if self._profiling is not None:
                self._profiled = self._profiling.end()
                self._profiling = None
            disturbed = any(lane.closed for lane in self._lanes[segment.name])
            self._cpu_s += window.cpu_s
            self._max_lag_ns = max(self._max_lag_ns, window.max_lag_ns)
            self._weigh(window)
            self._segments.append(
                {
                    "name": segment.name,
                    "start_ns": window.start_ns + self._anchor.epoch_ns,
                    "end_ns": window.end_ns + self._anchor.epoch_ns,
                    "source": "client",
                    "error_ns": 0,
                    "overlaps": [
                        [
                            call.sent_ns + self._anchor.epoch_ns,
                            call.ended_ns + self._anchor.epoch_ns,
                        ]
                        for call in window.calls
                        if disturbed and not call.lane.closed and call.sent_ns is not None
                    ],
                }
            )
            self._record(log, window, segment, warmup=False)

    def _empty_cache(self, segment: Segment) -> bool:
        """Empty the server's prefix cache if that is due before `segment`; False if it failed."""
        flush = self._spec.flush
        if flush is None or segment.name not in self._flush_before:
            return True
        done = empty_cache(
            segment.name,
            self._target.authority,
            flush,
            self._api_key,
            self._deadline_ns / 1e9,
            lambda: self._signal,
            self._anchor.epoch_ns,
        )
        self._flushes.append(done)
        problem = why_kept(done)
        self._reasons += [] if problem is None else [problem]
        return problem is None

    def _begin_profile(self, segment: Segment) -> None:
        profile = self._spec.profile
        if profile is None or profile.segment != segment.name:
            return
        if profile.settled:
            profile = profile._replace(after_s=profile.after_s + self._slowest_first_s)
        self._profiling = Profiling(
            profile, self._target.authority, self._api_key, self._out, self._anchor.epoch_ns
        )

    def _why_stop(self) -> Optional[str]:
        return self._signal or (self._profiling.enough() if self._profiling else None)

    def _window(self, address: Address, segment: Segment, min_window_ns: int) -> Window:
        window = Loop(
            address,
            self._lanes[segment.name],
            int(self._spec.timeout_s * 1e9),
            min_window_ns,
            self._deadline_ns,
            self._why_stop,
            self._keep_alive,
            lambda: self._begin_profile(segment),
        ).run(linger=segment is self._spec.warmup)
        self._keep_alive = window.keep_alive
        if window.stopped not in (None, PROFILED):
            self._reasons.append(window.stopped)
        return window

    def _weigh(self, window: Window) -> None:
        """Add up what tells whether this client kept up."""
        self._late.merge(window.late)
        if self._waited_s is not None:
            waited = window.waited_s
            self._waited_s = None if waited is None else self._waited_s + waited
        if window.end_ns > window.start_ns:
            share = window.cpu_s * 1e9 / (window.end_ns - window.start_ns)
            self._cpu_share = max(self._cpu_share, share)

    def _record(self, log: RequestLog, window: Window, segment: Segment, warmup: bool) -> List[str]:
        """Write the window's requests; returns their statuses."""
        statuses: List[str] = []
        calls = window.calls
        calls.reverse()
        while calls:
            # Taken off the list so that a long run's bytes are freed as they are written.
            call = calls.pop()
            record = recorded(call, segment.name, warmup, self._anchor.epoch_ns)
            log.write(record)
            statuses.append(record["status"])
            if not warmup:
                self._count(record, call.timed)
            elif self._spec.profile is not None and (figure := figures(record)) is not None:
                self._slowest_first_s = max(self._slowest_first_s, figure.ttft_s)
        return statuses

    def _count(self, record: Dict[str, Any], timed: bool) -> None:
        self._counts[record["status"]] += 1
        self._counts["sent"] += record["sent_ns"] is not None
        self._counts["retried"] += record["attempts"] > 1
        if record["error"] is not None:
            kind = record["error"]["class"]
            count, message = self.errors.get(kind, (0, record["error"]["message"]))
            self.errors[kind] = (count + 1, message)
        if timed and record["sent_ns"] is not None:
            self.lags_s.append((record["sent_ns"] - record["scheduled_ns"]) / 1e9)
        figure = figures(record)
        if figure is not None:
            self.found.append(figure)

    def _report(self) -> Dict[str, Any]:
        end = take_anchor()
        planned = sum(
            lane.limit for segment in self._spec.segments for lane in self._lanes[segment.name]
        )
        return {
            "schema": 1,
            "load_id": self._spec.load_id,
            "status": "failed" if self._reasons else "ok",
            "reasons": self._reasons,
            "started_ns": self._anchor.wall_ns,
            "ended_ns": end.mono_ns + self._anchor.epoch_ns,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "segments": self._segments,
            "warmup": self._warmup,
            "counts": {"planned": planned, **self._counts},
            **({} if self._sizing is None else {"sizing": self._sizing}),
            **({} if self._spec.flush is None else {"flushes": self._flushes}),
            **({} if self._spec.profile is None else {"profile": self._profiled}),
            "cpu_s": round(self._cpu_s, 6),
            "max_lag_ms": round(self._max_lag_ns / 1e6, 3),
            # Of the busiest segment, start and end of the program left out.
            "window_cpu_share": round(self._cpu_share, 4),
            "late_ms": self._late.figures(),
            # Time in the segments in which it had work and no core.
            "waited_s": None if self._waited_s is None else round(self._waited_s, 6),
            "clock": {
                "wall_ns": self._anchor.wall_ns,
                "mono_ns": self._anchor.mono_ns,
                # All times are of this anchor and the monotonic clock, which steps do not touch.
                "step_ns": end.epoch_ns - self._anchor.epoch_ns,
            },
        }

    def _on_signal(self, number: int, _frame: Optional[FrameType]) -> None:
        self._signal = SIGNALS[signal.Signals(number)]

    def _size_of(self, stream: Stream) -> int:
        return self._words.get(stream.isl, stream.isl)

    def _size(self, address: Address, chat: Chat, log: RequestLog) -> None:
        """Let the server count two prompts, and plan the words of all others by that.

        Raises SpecError: it counts none, or an ISL is too short for what surrounds the words.
        """
        texts = sizing_words(self._spec.seed)
        stream = Stream("sizing", "closed", 1, 1, 1, len(texts), ())

        def make(index: int) -> Tuple[str, bytes]:
            call_id = f"sizing-{index + 1:06d}"
            return call_id, self._render(texts[index], 1, call_id)

        self._lanes[stream.name] = [Lane(stream, make)]
        window = self._window(address, Segment(stream.name, (stream,)), 0)
        counts: List[Optional[int]] = []
        for call in window.calls:
            record = recorded(call, stream.name, True, self._anchor.epoch_ns)
            log.write(record)
            if record["error"] is not None:
                raise SpecError(f"the server counts no prompt: {record['error']['message']}")
            counts.append((record["usage"] or {}).get("prompt_tokens"))
        sizing = measure_sizing(counts)
        self._sizing = sizing._asdict()
        for segment in self._spec.segments:
            for lane in self._lanes[segment.name]:
                isl = lane.stream.isl
                self._words[isl], lane.isl = words_for(sizing, chat, isl)
        if self._spec.warmup is not None:
            for lane in self._lanes[self._spec.warmup.name]:
                least = max(lane.stream.isl, shortest(sizing, chat))
                self._words[lane.stream.isl], lane.isl = words_for(sizing, chat, least)


def flushed(spec: LoadSpec) -> Tuple[str, ...]:
    """Return the segments before which the prefix cache is emptied.

    Every measured one; but where the warm-up brings a shared prefix in, only the warm-up itself:
    a later flush would take the prefix out again.
    """
    if spec.flush is None:
        return ()
    if spec.warmup is not None and any(stream.prefix for stream in spec.warmup.streams):
        return (spec.warmup.name,)
    return tuple(segment.name for segment in spec.segments)


def find_address(target: Target) -> Tuple[Optional[Address], str]:
    """Return the first address of the host that takes a connection, or None and the reason."""
    where = f"{target.host}:{target.port}"
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return None, f"cannot resolve {where}: {error}"
    problem = "no address"
    for family, _, _, _, address in found:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(PROBE_S)
            try:
                probe.connect(address)
            except OSError as error:
                problem = error.strerror or str(error)
            else:
                return (family, address), ""
    return None, f"cannot connect to {where}: {problem}"


def _raise_file_limit() -> None:
    """One descriptor a connection: take as many as the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
