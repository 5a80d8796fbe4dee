"""Ten questions that a capture should answer, each with its figure or why it cannot.

They are those of the campaign plan that this project comes from: top kernels by phase, exposed and
hidden communication, gaps, graphs, ranks that end together, stragglers, experts, the indexer, and
what a long prefill does to decoding.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.analyse import Analysis, DeviceReport, FileReport
from servemap.analysis.traces.device import Communication
from servemap.analysis.traces.host import HostFigures
from servemap.analysis.traces.ranks import UNTOLD


@dataclass(frozen=True)
class Answer:
    """One question; `answered` is False where `answer` says why there is none."""

    question: str
    answered: bool
    answer: str


_PHASES = ("prefill", "decode", "mixed")


class _NoAnswerError(Exception):
    """The capture does not hold what a question needs."""


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.4g} ms"


def _devices(analysis: Analysis) -> list[tuple[FileReport, DeviceReport]]:
    found = [(file, one) for file in analysis.files for one in file.devices]
    if not found:
        raise _NoAnswerError("no device was traced")
    return found


def _name(file: FileReport, report: DeviceReport) -> str:
    if file.file.rank is not None:
        return f"rank {file.file.rank}"
    return f"device {report.figures.device}"


def _by_device(analysis: Analysis, say: Callable[[DeviceReport], str]) -> str:
    return "; ".join(f"{_name(file, one)}: {say(one)}" for file, one in _devices(analysis))


def _hosts(analysis: Analysis) -> list[tuple[FileReport, HostFigures]]:
    """Return the ranks whose work ran on the host; none where a device was traced."""
    if any(file.devices for file in analysis.files):
        return []
    return [
        (file, file.host)
        for file in analysis.files
        if file.host is not None and file.host.operators
    ]


def _top_kernels(analysis: Analysis) -> str:
    hosts = _hosts(analysis)
    said = []
    if hosts:
        name = f"on the host of rank {hosts[0][0].file.rank}"
        for host in hosts[0][1].phases:
            tops = [f"{one.name[:40]} {_ms(one.self_ns)}" for one in host.operators[:3]]
            said += [f"{host.phase}: {', '.join(tops)}"] if host.phase in _PHASES and tops else []
    else:
        file, report = _devices(analysis)[0]
        name = _name(file, report)
        for phase in report.phases:
            tops = [f"{one.name[:40]} {_ms(one.exposed_ns)}" for one in phase.kernels[:3]]
            said += [f"{phase.phase}: {', '.join(tops)}"] if phase.phase in _PHASES and tops else []
    if not said:
        raise _NoAnswerError("no work belongs to a named step of prefill or decode")
    return f"{name}, {'; '.join(said)}"


def _communication(analysis: Analysis) -> list[tuple[str, Communication, int]]:
    """Return the communication of each rank and the span that it lies in, ns."""
    found = [
        (f"host of rank {file.file.rank}", host.communication, host.span_ns)
        for file, host in _hosts(analysis)
    ] or [
        (_name(file, one), one.figures.communication, one.figures.span_ns)
        for file, one in _devices(analysis)
    ]
    if not any(one.total_ns for _, one, _ in found):
        raise _NoAnswerError("no communication was traced")
    return found


def _exposed(analysis: Analysis) -> str:
    return "; ".join(
        f"{name}: {_ms(one.exposed_ns)} exposed, {100 * one.exposed_ns / max(span, 1):.1f} % of "
        "the span"
        for name, one, span in _communication(analysis)
    )


def _hidden(analysis: Analysis) -> str:
    return "; ".join(
        f"{name}: {_ms(one.hidden_ns)} of {_ms(one.total_ns)} run while compute runs"
        for name, one, _ in _communication(analysis)
    )


def _holes(analysis: Analysis) -> str:
    hosts = _hosts(analysis)
    if hosts:
        return "; ".join(
            f"host of rank {file.file.rank}: operators run for {_ms(host.threads[0].busy_ns)} of "
            f"{_ms(host.span_ns)} on the busiest thread, no device was traced"
            for file, host in hosts
        )

    def say(one: DeviceReport) -> str:
        gaps = one.figures.gaps
        causes = ", ".join(f"{cause} {_ms(ns)}" for cause, ns in list(gaps.causes.items())[:3])
        return f"{gaps.gaps} gaps, {_ms(gaps.total_ns)}" + (f" ({causes})" if causes else "")

    return _by_device(analysis, say)


def _graphs(analysis: Analysis) -> str:
    reports = _devices(analysis)
    if all(one.figures.launches.graph_share is None for _, one in reports):
        raise _NoAnswerError("no launch was traced")
    if not any(step.phase == "decode" for _, one in reports for step in one.phases):
        raise _NoAnswerError("the trace names no decode step; by graph over the whole capture: "
                             + _by_device(analysis, _graph_share))  # fmt: skip
    return _by_device(analysis, _graph_share)


def _graph_share(one: DeviceReport) -> str:
    launches = one.figures.launches
    if launches.graph_share is None or launches.graph_time_share is None:
        return "not traced"
    return (
        f"{100 * launches.graph_share:.1f} % of {launches.kernels} kernels and "
        f"{100 * launches.graph_time_share:.1f} % of their time"
    )


def _together(analysis: Analysis) -> str:
    across = analysis.across
    if across is None:
        raise _NoAnswerError(analysis.across_missing)
    offset = {one.rank: one.offset_ns for one in across.ranks}
    ends: list[list[int]] = []
    for file in analysis.files:
        if file.file.rank is not None:
            base = (file.file.base_ns or 0) - offset[file.file.rank]
            ends.append([step.end_ns + base for step in file.host_steps])
    if not ends or not ends[0] or len({len(one) for one in ends}) > 1:
        raise _NoAnswerError("the ranks do not name the same steps")
    spread = np.ptp(np.array(ends), axis=0)
    return (
        f"{len(spread)} steps end on the hosts of {len(ends)} ranks within p50 "
        f"{_ms(float(np.median(spread)))}, at most {_ms(float(spread.max()))}"
    )


def _straggler(analysis: Analysis) -> str:
    if analysis.across is None:
        raise _NoAnswerError(analysis.across_missing)
    if analysis.across.straggler.startswith(UNTOLD):
        raise _NoAnswerError(analysis.across.straggler.removeprefix(UNTOLD))
    waited = ", ".join(f"{one.rank}: {_ms(one.waiting_ns)}" for one in analysis.across.ranks)
    return f"{analysis.across.straggler}; waited at collectives, by rank {waited}"


def _class_by_rank(analysis: Analysis, name: str) -> dict[str, int]:
    classes = [
        (f"host of rank {file.file.rank}", one)
        for file, host in _hosts(analysis)
        for one in host.classes
    ] or [
        (_name(file, report), one)
        for file, report in _devices(analysis)
        for one in report.figures.classes
    ]
    return {where: one.total_ns for where, one in classes if one.id == name}


def _experts(analysis: Analysis) -> str:
    times = _class_by_rank(analysis, "moe_experts")
    if not times:
        raise _NoAnswerError("no kernel of experts ran in this capture")
    if len(times) < 2:
        raise _NoAnswerError("only one rank's experts are in this capture")
    mean = sum(times.values()) / len(times)
    top = max(times, key=lambda one: times[one])
    return (
        f"time of expert kernels: most on {top}, {_ms(times[top])}, "
        f"{times[top] / mean:.3g} times the mean; numbers of tokens are not in a trace"
    )


def _indexer(analysis: Analysis) -> str:
    indexer = _class_by_rank(analysis, "indexer")
    if not indexer:
        raise _NoAnswerError("no kernel of an indexer ran in this capture")
    attention = _class_by_rank(analysis, "attention")
    return "; ".join(
        f"{name}: {100 * ns / (ns + attention.get(name, 0)):.1f} % of indexer and attention"
        for name, ns in indexer.items()
    )


def _delayed(analysis: Analysis) -> str:
    hosts = _hosts(analysis)
    if hosts:
        file = hosts[0][0]
        name = f"host of rank {file.file.rank}"
        times = [(str(one.phase), one.name, one.end_ns - one.start_ns) for one in file.host_steps]
    else:
        file, report = _devices(analysis)[0]
        name = _name(file, report)
        times = [
            (one.phase, one.name, one.device_span_ns)
            for one in report.steps
            if one.device_span_ns is not None
        ]
    decode = [ns for phase, _, ns in times if phase == "decode"]
    if not decode:
        raise _NoAnswerError("no decode step is in this capture")
    if not any(phase in ("mixed", "prefill") for phase, _, _ in times):
        raise _NoAnswerError("no prefill ran beside decoding in this capture")
    said = [f"{name}: a decode step takes {_ms(float(np.median(decode)))} (median)"]
    slow = [(ns, step) for phase, step, ns in times if phase == "mixed"]
    if slow:
        worst, step = max(slow)
        said.append(f"{len(slow)} steps with prefill in them take up to {_ms(worst)} ({step[:60]})")
    said += _between([(phase, ns) for phase, _, ns in times])
    if len(said) == 1:
        raise _NoAnswerError("no prefill ran between two decode steps of it")
    return "; ".join(said)


def _between(steps: Iterable[tuple[str, int]]) -> list[str]:
    """Return how long decoding stood still for steps of prefill alone."""
    waits, wait, decoding = [], 0, False
    for phase, ns in steps:
        if phase == "prefill":
            wait += ns
        elif phase in ("decode", "mixed"):
            if wait and decoding:
                waits.append(wait)
            wait, decoding = 0, True
    if not waits:
        return []
    return [f"{len(waits)} times decoding waited for prefill steps, up to {_ms(max(waits))}"]


QUESTIONS: dict[str, Callable[[Analysis], str]] = {
    "top kernels of prefill and of decode": _top_kernels,
    "exposed time of communication": _exposed,
    "communication hidden behind compute": _hidden,
    "holes left by the host or by synchronising": _holes,
    "do graphs cover the decode batches": _graphs,
    "do all ranks end together": _together,
    "is there a fixed slow rank": _straggler,
    "are expert loads uneven": _experts,
    "share of the indexer in sparse attention": _indexer,
    "why a long prefill delays decoding": _delayed,
}


def answers(analysis: Analysis) -> list[Answer]:
    """Return the ten questions with their answers, in the order of the plan."""
    found = []
    for question, answer in QUESTIONS.items():
        try:
            found.append(Answer(question, True, answer(analysis)))
        except _NoAnswerError as why:
            text = f"not answerable from this capture because {why}"
            found.append(Answer(question, False, text))
    return found
