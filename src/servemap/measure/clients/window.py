"""When a load client of others measured, on the clock of its node."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from servemap.measure.clients.base import Adapter
from servemap.model.errors import ParseError
from servemap.parsers.clients.records import REMEDY, ClientRun
from servemap.parsers.values import integer, mapping

MONOTONIC = "clock_gettime(CLOCK_MONOTONIC)"
"""What `time.perf_counter` is on Linux: a clock that all processes of a machine share."""
SLACK_NS = 1_000_000_000
"""By how much stamps may lie outside of the client's own lines before they are not believed."""


class Window(NamedTuple):
    """The interval that a client divides by, where it is known from, and its error; ns."""

    start_ns: int
    end_ns: int
    source: str
    error_ns: int


def window(run: ClientRun, record: Mapping[str, Any], adapter: Adapter) -> Window:
    """Return the interval that a client measured.

    Args:
        run: what its result files say.
        record: client.json of `onnode run-client`.
        adapter: what is known of the client.

    Raises:
        ParseError: nothing that the client left says when it measured, or it says a time at which
            it did not run.
    """
    # By so much the wall clock was set meanwhile, of which some clients' stamps are.
    step_ns = abs(integer(mapping(record.get("clock")).get("step_ns")) or 0)
    found = _found(run, record, adapter, step_ns)
    started, ended = integer(record.get("started_ns")), integer(record.get("ended_ns"))
    slack_ns = SLACK_NS + step_ns
    if (started is not None and found.start_ns < started - slack_ns) or (
        ended is not None and found.end_ns > ended + slack_ns
    ):
        raise ParseError(
            "what the client says of its time does not lie in the time in which it ran",
            found.source,
            REMEDY,
        )
    return found


def _found(run: ClientRun, record: Mapping[str, Any], adapter: Adapter, step_ns: int) -> Window:
    if run.window_ns is not None:
        error_ns = step_ns + round(run.rounding_s * 1e9)
        return Window(*run.window_ns, "the client's phases", error_ns)
    if not run.duration_s:
        raise ParseError("the client does not say how long it measured", "duration", REMEDY)
    duration_ns = round(run.duration_s * 1e9)
    begin, end = _mark(record, "begin"), _mark(record, "end")
    stamped = _stamped(run, record, duration_ns)
    if stamped is not None and _within(stamped, begin, end):
        return stamped
    if begin is None or end is None:
        name = "begin" if begin is None else "end"
        raise ParseError(f"the client never said the line that marks the {name}", name, REMEDY)
    return _between(begin + round(adapter.pause_s * 1e9), end - duration_ns, duration_ns)


def _stamped(run: ClientRun, record: Mapping[str, Any], duration_ns: int) -> Window | None:
    """The interval from the requests' stamps: it begins before the first and ends after the last.

    The client's clock was started after `last end - duration` and before the first arrival.
    """
    clock = mapping(record.get("clock"))
    wall_ns, mono_ns = integer(clock.get("wall_ns")), integer(clock.get("mono_ns"))
    spans = [(c.start_s, c.latency_s) for c in run.calls if c.start_s is not None]
    if mapping(record.get("client")).get("perf_counter") != MONOTONIC:
        return None
    if wall_ns is None or mono_ns is None or not spans:
        return None
    first_s = min(start for start, _ in spans) - run.queue_s
    last_s = max(start + (latency or 0.0) for start, latency in spans)
    start_ns = wall_ns - mono_ns + round(first_s * 1e9)
    spare_ns = duration_ns - round((last_s - first_s) * 1e9)
    if spare_ns < 0:
        return None
    return Window(start_ns, start_ns + duration_ns, "the client's stamps", spare_ns)


def _within(found: Window, begin: int | None, end: int | None) -> bool:
    return (begin is None or found.start_ns > begin - SLACK_NS) and (
        end is None or found.end_ns < end + SLACK_NS
    )


def _between(earliest_ns: int, latest_ns: int, duration_ns: int) -> Window:
    """The interval from the lines: begun at `earliest_ns` or later, `latest_ns` or earlier.

    A line that came late can turn the two about; the interval then ends before the last line.
    """
    start_ns = min(earliest_ns, latest_ns)
    error_ns = abs(latest_ns - earliest_ns)
    return Window(start_ns, start_ns + duration_ns, "the client's lines", error_ns)


def _mark(record: Mapping[str, Any], name: str) -> int | None:
    return integer(mapping(mapping(record.get("marks")).get(name)).get("t_ns"))
