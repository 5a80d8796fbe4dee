"""Checks of the server: it is the one that was gated, it went on, and it had room."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from servemap.analysis.checks.in_flight import add_by_time
from servemap.analysis.server_marks import Marks
from servemap.analysis.verdict import Check
from servemap.parsers.values import sequence, text
from servemap.telemetry.align import AlignedSeries, Segment
from servemap.telemetry.catalogue import engine_metrics

SHOWN = 5
"""Drifted facts that a check names."""


def check_stalled(telemetry: Iterable[AlignedSeries], limits: dict[str, float]) -> list[Check]:
    """Check by the engine's own gauges that it never sat on waiting requests with none running.

    A worker that died or hangs shows so while `/health` still answers. No check where an engine
    does not tell both.

    Args:
        telemetry: aligned, of all segments.
        limits: limits by name.
    """
    running = {own.running for own in engine_metrics().values()}
    waiting = {own.waiting for own in engine_metrics().values()}
    active: dict[int, float] = {}
    queued: dict[int, float] = {}
    for one in telemetry:
        for names, totals in ((running, active), (waiting, queued)):
            if one.metric in names:
                add_by_time(totals, one)
    both = sorted(active.keys() & queued.keys())
    if not both:
        return []
    longest = 0.0
    since: int | None = None
    for t_ns in both:
        if active[t_ns] == 0 and queued[t_ns] > 0:
            since = t_ns if since is None else since
            longest = max(longest, (t_ns - since) / 1e9)
        else:
            since = None
    return [Check("server_stalled_s", longest, limits["stalled_s"], longest <= limits["stalled_s"])]


def check_identity(marks: Sequence[Marks], segments: Sequence[Segment]) -> list[Check]:
    """Check that the same server answered from the first segment's begin to the last one's end.

    Known by pid and start time of the root processes on each node, by the start that the engine's
    own process tells, and by its counters, which only a restart sets back. n/a where there is none
    of these, as of an attached server without metrics.
    """
    name = "server_unchanged"
    inside = _around(marks, segments)
    changes: list[str] = []
    for node in dict.fromkeys(mark.node for mark in inside):
        own = [mark for mark in inside if mark.node == node]
        roots = [mark.processes for mark in own if mark.processes is not None]
        for pid in sorted({pid for seen in roots for pid in seen}):
            starts = {seen.get(pid) for seen in roots}
            if None in starts:
                changes.append(f"process {pid} on {node} came or went")
            elif len(starts) > 1:
                changes.append(f"process {pid} on {node} is another one")
        if roots and not any(roots):
            changes.append(f"no process of the server was seen on {node}")
        if len({mark.started_s for mark in own if mark.started_s is not None}) > 1:
            changes.append(f"the engine on {node} tells of another start")
        changes += [
            f"counter {counter} on {node} was set back"
            for counter in dict.fromkeys(key for mark in own for key in mark.counters)
            if _set_back([mark.counters[counter] for mark in own if counter in mark.counters])
        ]
    known = any(m.processes is not None or m.counters or m.started_s is not None for m in inside)
    if not known:
        return [Check(name, None, 0, None, "neither its processes nor its counters are known")]
    return [Check(name, len(changes), 0, not changes, "; ".join(changes))]


def check_preemptions(
    marks: Sequence[Marks],
    segments: Sequence[Segment],
    requests: Mapping[str, int],
    limits: Mapping[str, float],
) -> list[Check]:
    """Check per segment how many requests the engine had to put back for want of memory.

    The count is the growth of the engine's counter from the last sample before a segment to the
    first one after it, over the segment's requests. No check where no engine has such a counter.

    Args:
        marks: samples of the engine's counters.
        segments: the measured intervals.
        requests: how many were measured, by segment.
        limits: limits by name.
    """
    limit = limits["preempted_share"]
    names = [own.preemptions for own in engine_metrics().values() if own.preemptions]
    # An engine without a single series of a labelled counter did not preempt yet; it is known by
    # any of its other counters.
    queries = {own.preemptions: own.cache_queries for own in engine_metrics().values()}
    checks: list[Check] = []
    for counter in names:
        own = [m for m in marks if counter in m.counters or set(queries[counter]) & set(m.counters)]
        for segment in segments if own else ():
            name = f"preempted_share {segment.name}"
            around = [m.counters.get(counter, 0.0) for m in _around(own, [segment])]
            sent = requests.get(segment.name, 0)
            if len(around) < 2 or not sent or _set_back(around):
                checks.append(Check(name, None, limit, None, "the engine's counter is not known"))
                continue
            count = around[-1] - around[0]
            note = f"{count:.0f} by {counter}"
            checks.append(Check(name, count / sent, limit, count / sent <= limit, note))
    return checks


def check_facts(server: Mapping[str, Any], limits: Mapping[str, float]) -> list[Check]:
    """Check that the frozen facts held when the case began.

    Where they do not, nothing is measured, unless `policy.on_drift` is `mark`.

    Args:
        server: meta.json's `server`, whose `drift` says in words what is not as it was frozen.
        limits: limits by name.
    """
    name, limit = "frozen_facts", limits["drifted_facts"]
    if "drift" not in server:
        return [Check(name, None, limit, None, "the record does not say")]
    drift = [text(item) or "" for item in sequence(server.get("drift"))]
    more = f" and {len(drift) - SHOWN} more" if len(drift) > SHOWN else ""
    note = "; ".join(drift[:SHOWN]) + more
    return [Check(name, len(drift), limit, len(drift) <= limit, note)]


def _around(marks: Sequence[Marks], segments: Sequence[Segment]) -> list[Marks]:
    """Return the samples inside, and of each node and kind the next one on either side."""
    begin = min((segment.start_ns for segment in segments), default=0)
    end = max((segment.end_ns for segment in segments), default=0)
    found: list[Marks] = []
    kinds = dict.fromkeys((mark.node, mark.processes is None) for mark in marks)
    for node, engine in kinds:
        own = sorted(
            (m for m in marks if (m.node, m.processes is None) == (node, engine)),
            key=lambda mark: mark.t_ns,
        )
        before = [m for m in own if m.t_ns < begin][-1:]
        after = [m for m in own if m.t_ns > end][:1]
        found += [*before, *(m for m in own if begin <= m.t_ns <= end), *after]
    return found


def _set_back(values: Sequence[float]) -> bool:
    return any(after < before for before, after in pairwise(values))
