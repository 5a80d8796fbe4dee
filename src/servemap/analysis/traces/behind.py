"""The events behind an answer: what to look at in the trace, and where it is there."""

from collections.abc import Iterable
from dataclasses import dataclass

from servemap.analysis.traces.device import DeviceFigures, KernelTime
from servemap.analysis.traces.gaps import Gap
from servemap.analysis.traces.host import CallTime
from servemap.analysis.traces.phases import StepFigures
from servemap.analysis.traces.ranks import LateCollective

SHOWN = 3
_BRIEF = 22


@dataclass(frozen=True)
class Behind:
    """Events of one name on one rank or device.

    `length_ns` is of all `events` together. `start_ns` is where to look, on the clock of the file:
    the only event, or the longest; None where the figures keep no place.
    """

    where: str
    name: str
    events: int
    length_ns: int
    start_ns: int | None


def of_kernels(where: str, kernels: Iterable[KernelTime]) -> list[Behind]:
    """Return the first of some kernels."""
    return [
        Behind(where, one.name, one.runs, one.sum_ns, one.longest_start_ns)
        for one in list(kernels)[:SHOWN]
    ]


def of_classes(where: str, figures: DeviceFigures, classes: set[str]) -> list[Behind]:
    """Return the kernels of some classes with the most exposed time."""
    return of_kernels(where, (one for one in figures.kernels if one.class_id in classes))


def of_calls(where: str, calls: Iterable[CallTime]) -> list[Behind]:
    """Return the first of some operators of a host."""
    return [Behind(where, one.name, one.calls, one.total_ns, None) for one in list(calls)[:SHOWN]]


def of_gaps(where: str, longest: Iterable[Gap]) -> list[Behind]:
    """Return the longest idle gaps, named by what stands around them."""
    return [
        Behind(
            where,
            f"idle from {_brief(one.before)} to {_brief(one.after)}",
            1,
            one.length_ns,
            one.start_ns,
        )
        for one in list(longest)[:SHOWN]
    ]


def _brief(name: str) -> str:
    """Return so much of a kernel's name that two of them fit in a line."""
    return name.removeprefix("void ").replace("(anonymous namespace)::", "")[:_BRIEF]


def of_steps(where: str, steps: Iterable[StepFigures]) -> list[Behind]:
    """Return the longest of some steps on their device."""
    known = [one for one in steps if one.device_span_ns is not None]
    known.sort(key=lambda one: -(one.device_span_ns or 0))
    return [
        Behind(where, one.name, 1, one.device_span_ns or 0, one.device_start_ns)
        for one in known[:SHOWN]
    ]


def of_collectives(largest: Iterable[LateCollective]) -> list[Behind]:
    """Return the collectives with the largest skew; their length is the skew."""
    return [
        Behind(f"rank {one.late_rank}", f"late at {one.name}", 1, one.skew_ns, one.start_ns)
        for one in list(largest)[:SHOWN]
    ]
