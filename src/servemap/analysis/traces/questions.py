"""Ten questions that a capture should answer, each with its figure or why it cannot.

They are those of the campaign plan that this project comes from: top kernels by phase, exposed and
hidden communication, gaps, graphs, ranks that end together, stragglers, experts, the indexer, and
what a long prefill does to decoding.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.analyse import Analysis, DeviceReport
from servemap.analysis.traces.asked import (
    NoAnswerError,
    Said,
    class_by_rank,
    device_name,
    devices,
    host_name,
    hosts,
    say_ms,
)
from servemap.analysis.traces.behind import (
    SHOWN,
    Behind,
    of_calls,
    of_classes,
    of_collectives,
    of_gaps,
    of_kernels,
    of_steps,
)
from servemap.analysis.traces.brief import brief
from servemap.analysis.traces.classes import class_ids, class_kinds
from servemap.analysis.traces.delays import delayed
from servemap.analysis.traces.device import Communication
from servemap.analysis.traces.experts import say_load
from servemap.analysis.traces.ranks import UNTOLD


@dataclass(frozen=True)
class Answer:
    """One question; `answered` is False where `answer` says why there is none.

    `behind` are events that the answer rests on.
    """

    question: str
    answered: bool
    answer: str
    behind: list[Behind]


_PHASES = ("prefill", "decode", "mixed")


def _by_device(analysis: Analysis, say: Callable[[DeviceReport], str]) -> str:
    return "; ".join(f"{device_name(file, one)}: {say(one)}" for file, one in devices(analysis))


def _top_kernels(analysis: Analysis) -> Said:
    on_host = hosts(analysis)
    said: list[str] = []
    behind: list[Behind] = []
    if on_host:
        name = host_name(on_host[0][0])
        for host in on_host[0][1].phases:
            tops = [f"{brief(one.name, 40)} {say_ms(one.self_ns)}" for one in host.operators[:3]]
            if host.phase in _PHASES and tops:
                said.append(f"{host.phase}: {', '.join(tops)}")
                behind += of_calls(f"{name}, {host.phase}", host.operators)
    else:
        file, report = devices(analysis)[0]
        name = device_name(file, report)
        for phase in report.phases:
            tops = [f"{brief(one.name, 40)} {say_ms(one.exposed_ns)}" for one in phase.kernels[:3]]
            if phase.phase in _PHASES and tops:
                said.append(f"{phase.phase}: {', '.join(tops)}")
                behind += of_kernels(f"{name}, {phase.phase}", phase.kernels)
    if not said:
        raise NoAnswerError("no work belongs to a named step of prefill or decode")
    return f"{name}, {'; '.join(said)}", behind


def _communication(analysis: Analysis) -> tuple[list[tuple[str, Communication, int]], list[Behind]]:
    """Return the communication of each rank with the span that it lies in, ns; what it is of."""
    talks = {
        name for name, kind in zip(class_ids(), class_kinds(), strict=True)
        if kind == "communication"
    }  # fmt: skip
    behind: list[Behind] = []
    found = []
    for file, host in hosts(analysis):
        found.append((host_name(file), host.communication, host.span_ns))
        ours = (one for one in host.operators if one.class_id in talks)
        behind += of_calls(host_name(file), ours)
    if not found:
        for file, one in devices(analysis):
            found.append((device_name(file, one), one.figures.communication, one.figures.span_ns))
            behind += of_classes(device_name(file, one), one.figures, talks)
    if not any(one.total_ns for _, one, _ in found):
        raise NoAnswerError("no communication was traced")
    return found, behind


def _exposed(analysis: Analysis) -> Said:
    found, behind = _communication(analysis)
    said = (
        f"{name}: {say_ms(one.exposed_ns)} exposed, {100 * one.exposed_ns / max(span, 1):.1f} % of "
        "the span"
        for name, one, span in found
    )
    return "; ".join(said), behind


def _hidden(analysis: Analysis) -> Said:
    found, behind = _communication(analysis)
    said = (
        f"{name}: {say_ms(one.hidden_ns)} of {say_ms(one.total_ns)} run while compute runs"
        for name, one, _ in found
    )
    return "; ".join(said), behind


def _holes(analysis: Analysis) -> Said:
    on_host = hosts(analysis)
    if on_host:
        said = (
            f"{host_name(file)}: operators run for {say_ms(host.threads[0].busy_ns)} of "
            f"{say_ms(host.span_ns)} on the busiest thread, no device was traced"
            for file, host in on_host
        )
        return "; ".join(said), []

    def say(one: DeviceReport) -> str:
        gaps = one.figures.gaps
        causes = ", ".join(f"{cause} {say_ms(ns)}" for cause, ns in list(gaps.causes.items())[:3])
        return f"{gaps.gaps} gaps, {say_ms(gaps.total_ns)}" + (f" ({causes})" if causes else "")

    behind = [
        gap for file, one in devices(analysis)
        for gap in of_gaps(device_name(file, one), one.figures.gaps.longest)
    ]  # fmt: skip
    return _by_device(analysis, say), behind


def _graphs(analysis: Analysis) -> Said:
    reports = devices(analysis)
    if all(one.figures.launches.graph_share is None for _, one in reports):
        raise NoAnswerError("no launch was traced")
    whole = _by_device(analysis, _graph_share)
    if not any(step.phase == "decode" for _, one in reports for step in one.phases):
        raise NoAnswerError(
            f"the trace names no decode step; by graph over the whole capture: {whole}"
        )
    said, behind = [], []
    for file, report in reports:
        steps = [one for one in report.steps if one.phase == "decode" and one.kernels]
        batches = Counter(one.decode_requests for one in steps)
        for batch, count in sorted(batches.items(), key=lambda item: item[0] or 0):
            ours = [one for one in steps if one.decode_requests == batch]
            share = sum(one.by_graph for one in ours) / sum(one.kernels for one in ours)
            size = "of unnamed batch" if batch is None else f"of {batch} requests"
            plural = "step" if count == 1 else "steps"
            said.append(
                f"{device_name(file, report)}: {count} decode {plural} {size}, {100 * share:.1f} % "
                "of kernels by graph"
            )
        behind += of_steps(device_name(file, report), steps)
    return "; ".join([*said, f"whole capture: {whole}"]), behind


def _graph_share(one: DeviceReport) -> str:
    launches = one.figures.launches
    if launches.graph_share is None or launches.graph_time_share is None:
        return "not traced"
    return (
        f"{100 * launches.graph_share:.1f} % of {launches.kernels} kernels and "
        f"{100 * launches.graph_time_share:.1f} % of their time"
    )


def _together(analysis: Analysis) -> Said:
    across = analysis.across
    if across is None:
        raise NoAnswerError(analysis.across_missing)
    offset = {one.rank: one.offset_ns for one in across.ranks}
    ends: list[list[int]] = []
    ranks = [file for file in analysis.files if file.file.rank is not None]
    for file in ranks:
        base = (file.file.base_ns or 0) - offset[file.file.rank or 0]
        ends.append([step.end_ns + base for step in file.host_steps])
    if not ends or not ends[0] or len({len(one) for one in ends}) > 1:
        raise NoAnswerError("the ranks do not name the same steps")
    spread = np.ptp(np.array(ends), axis=0)
    last = np.argmax(np.array(ends), axis=0)
    behind = [
        Behind(
            host_name(ranks[int(last[step])]),
            f"ends last: {ranks[int(last[step])].host_steps[step].name}",
            1,
            int(spread[step]),
            ranks[int(last[step])].host_steps[step].start_ns,
        )
        for step in np.argsort(-spread, kind="stable")[:SHOWN].tolist()
    ]
    said = (
        f"{len(spread)} steps end on the hosts of {len(ends)} ranks within p50 "
        f"{say_ms(float(np.median(spread)))}, at most {say_ms(float(spread.max()))}"
    )
    error_ns = max(one.error_ns for one in across.ranks)
    if error_ns >= float(np.median(spread)):
        said += f"; their clocks are known to {say_ms(error_ns)} only, so that says nothing"
    return said, behind


def _straggler(analysis: Analysis) -> Said:
    if analysis.across is None:
        raise NoAnswerError(analysis.across_missing)
    if analysis.across.straggler.startswith(UNTOLD):
        raise NoAnswerError(analysis.across.straggler.removeprefix(UNTOLD))
    waited = ", ".join(f"{one.rank}: {say_ms(one.waiting_ns)}" for one in analysis.across.ranks)
    said = f"{analysis.across.straggler}; waited at collectives, by rank {waited}"
    return said, of_collectives(analysis.across.largest)


def _experts(analysis: Analysis) -> Said:
    if analysis.experts is not None and analysis.experts.layers:
        return say_load(analysis.experts), class_by_rank(analysis, "moe_experts")[1]
    if analysis.experts is not None:
        raise NoAnswerError("the record of experts counts no token")
    times, behind = class_by_rank(analysis, "moe_experts")
    if not times:
        raise NoAnswerError("no kernel of experts ran in this capture")
    if len(times) < 2:
        raise NoAnswerError("only one rank's experts are in this capture")
    mean = sum(times.values()) / len(times)
    top = max(times, key=lambda one: times[one])
    return (
        f"time of expert kernels: most on {top}, {say_ms(times[top])}, "
        f"{times[top] / mean:.3g} times the mean; numbers of tokens are not in a trace"
    ), behind


def _indexer(analysis: Analysis) -> Said:
    indexer, behind = class_by_rank(analysis, "indexer")
    if not indexer:
        raise NoAnswerError("no kernel of an indexer ran in this capture")
    attention, more = class_by_rank(analysis, "attention")
    said = (
        f"{name}: {100 * ns / (ns + attention.get(name, 0)):.1f} % of indexer and attention"
        for name, ns in indexer.items()
    )
    return "; ".join(said), [*behind, *more]


QUESTIONS: dict[str, Callable[[Analysis], Said]] = {
    "top kernels of prefill and of decode": _top_kernels,
    "exposed time of communication": _exposed,
    "communication hidden behind compute": _hidden,
    "holes left by the host or by synchronising": _holes,
    "do graphs cover the decode batches": _graphs,
    "do all ranks end together": _together,
    "is there a fixed slow rank": _straggler,
    "are expert loads uneven": _experts,
    "share of the indexer in sparse attention": _indexer,
    "why a long prefill delays decoding": delayed,
}


def answers(analysis: Analysis) -> list[Answer]:
    """Return the ten questions with their answers, in the order of the plan."""
    found = []
    for question, answer in QUESTIONS.items():
        try:
            said, behind = answer(analysis)
            found.append(Answer(question, True, said, behind))
        except NoAnswerError as why:
            text = f"not answerable from this capture because {why}"
            found.append(Answer(question, False, text, []))
    return found
