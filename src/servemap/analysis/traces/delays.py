"""Which decode steps a prefill delayed, and by what."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from servemap.analysis.traces.analyse import Analysis
from servemap.analysis.traces.asked import (
    NoAnswerError,
    Said,
    device_name,
    devices,
    host_name,
    hosts,
    say_ms,
)
from servemap.analysis.traces.behind import SHOWN, Behind
from servemap.analysis.traces.brief import brief
from servemap.analysis.traces.host import HostPhase

MOST_CLASSES = 3


class TimedStep(NamedTuple):
    """A step with its length and, where it is known, the time of each class of work in it, ns."""

    phase: str
    name: str
    length_ns: int
    start_ns: int
    classes: dict[str, int]


class Delays(NamedTuple):
    """Steps of decoding beside prefills; times in ns.

    `slowed` are the mixed steps, `more` what the longest of them spends on each class beyond a
    median decode step. `waits` are times of prefill steps alone that stood between decode steps.
    """

    decode_ns: float
    slowed: list[TimedStep]
    more: dict[str, int]
    waits: list[tuple[int, TimedStep]]


def delays(steps: list[TimedStep]) -> Delays:
    """Return what prefills did to decoding; `steps` in order of time, one of them a decode step."""
    decode = [one for one in steps if one.phase == "decode"]
    slowed = [one for one in steps if one.phase == "mixed"]
    more: dict[str, int] = {}
    if slowed:
        worst = max(slowed, key=lambda one: one.length_ns).classes
        usual = {
            name: median([one.classes.get(name, 0) for one in decode])
            for name in {*worst, *(name for one in decode for name in one.classes)}
        }
        more = _most({name: worst.get(name, 0) - usual[name] for name in usual})
    return Delays(median([one.length_ns for one in decode]), slowed, more, _waits(steps))


def phase_excess(phases: Iterable[HostPhase]) -> dict[str, int]:
    """Return what a mean mixed step spends on each class beyond a mean decode step, ns; of a host.

    Empty where one of the two is not there.
    """
    means = {
        phase.phase: {one.id: one.exposed_ns / phase.steps for one in phase.classes}
        for phase in phases
    }
    mixed, decode = means.get("mixed"), means.get("decode")
    if mixed is None or decode is None:
        return {}
    return _most({name: mixed[name] - decode.get(name, 0) for name in mixed})


def _most(more: dict[str, float]) -> dict[str, int]:
    ordered = sorted(more.items(), key=lambda item: -item[1])
    return {name: round(ns) for name, ns in ordered[:MOST_CLASSES] if ns > 0}


def _waits(steps: list[TimedStep]) -> list[tuple[int, TimedStep]]:
    """Return for each time that decoding stood still for prefills alone: ns, and the longest."""
    found: list[tuple[int, TimedStep]] = []
    between: list[TimedStep] = []
    decoding = False
    for one in steps:
        if one.phase == "prefill":
            between.append(one)
        elif one.phase in ("decode", "mixed"):
            if between and decoding:
                longest = max(between, key=lambda step: step.length_ns)
                found.append((sum(step.length_ns for step in between), longest))
            between, decoding = [], True
    return found


def delayed(analysis: Analysis) -> Said:
    """Answer why a long prefill delays decoding: which steps, and by what."""
    on_host = hosts(analysis)
    if on_host:
        file, host = on_host[0]
        name = host_name(file)
        steps = [
            TimedStep(str(one.phase), one.name, one.end_ns - one.start_ns, one.start_ns, {})
            for one in file.host_steps
        ]
    else:
        file, report = devices(analysis)[0]
        name = device_name(file, report)
        steps = [
            TimedStep(
                one.phase, one.name, one.device_span_ns, one.device_start_ns or 0, one.classes
            )
            for one in report.steps
            if one.device_span_ns is not None
        ]
    phases = {one.phase for one in steps}
    if "decode" not in phases:
        raise NoAnswerError("no decode step is in this capture")
    if not phases & {"mixed", "prefill"}:
        raise NoAnswerError("no prefill ran beside decoding in this capture")
    found = delays(steps)
    if on_host:
        found = found._replace(more=phase_excess(host.phases))
    if not found.slowed and not found.waits:
        raise NoAnswerError("no prefill ran between two decode steps of it")
    return _say_delays(name, found)


def _say_delays(name: str, found: Delays) -> Said:
    said = [f"{name}: a decode step takes {say_ms(found.decode_ns)} (median)"]
    delayed = sorted(found.slowed, key=lambda one: -one.length_ns)
    if delayed:
        more = ", ".join(f"{kind} {say_ms(ns)}" for kind, ns in found.more.items())
        said.append(
            f"{len(delayed)} steps with prefill in them take up to {say_ms(delayed[0].length_ns)} "
            f"({brief(delayed[0].name, 60)})" + (f", most of it more on {more}" if more else "")
        )
    if found.waits:
        longest = max(ns for ns, _ in found.waits)
        said.append(
            f"{len(found.waits)} times decoding waited for prefill steps, up to {say_ms(longest)}"
        )
    events = [*delayed[:SHOWN], *(step for _, step in sorted(found.waits, reverse=True)[:SHOWN])]
    return "; ".join(said), [
        Behind(name, one.name, 1, one.length_ns, one.start_ns) for one in events
    ]
