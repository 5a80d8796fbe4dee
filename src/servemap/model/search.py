"""What a search does next: doubling until the SLO is missed, then bisection; pure decisions.

The answer is the largest level that met the SLO below the smallest one that missed it. An invalid
probe says nothing: its level is tried once more, and a second one ends the search.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Outcome = Literal["met", "missed", "invalid"]
Ended = Literal["converged", "most", "none", "probes", "time", "invalid"]

SAID: dict[str, str] = {
    "converged": "converged",
    "most": "the largest level that was allowed still met the SLO, so the answer is a lower bound",
    "none": "the least level there is missed the SLO, in one probe",
    "probes": "no probe was left, so the answer is a lower bound",
    "time": "no time was left, so the answer is a lower bound",
    "invalid": "a level was invalid twice, so the answer is a lower bound",
}
"""How a search ended, in words."""

_UNITS = {"rate": " req/s"}


def say_level(over: str, level: float) -> str:
    """Return `concurrency 24` or `rate 2.5 req/s`."""
    return f"{over} {level:g}{_UNITS.get(over, '')}"


@dataclass(frozen=True)
class Bounds:
    """Where a search begins and what ends it; `whole` for concurrencies, which are at least 1."""

    whole: bool
    start: float
    most: float
    tolerance: float
    max_probes: int
    max_s: float


class Probed(NamedTuple):
    """What one probe said of its level."""

    level: float
    outcome: Outcome


class Step(NamedTuple):
    """The level to probe next, or how the search has ended."""

    level: float | None = None
    ended: Ended | None = None


class Judgement(NamedTuple):
    """What was found of one probe, with the share of its requests that met the SLO, 0 to 1."""

    outcome: Outcome
    share: float | None
    reasons: list[str]


Judge = Callable[[Path, dict[str, Any]], Judgement]
"""From a probe's raw files and the resolved case to what they say of its level."""


def bounds_of(case: Mapping[str, Any]) -> Bounds:
    """Return the bounds of a resolved case of kind `search`."""
    return Bounds(
        case["over"] == "concurrency",
        case["start"],
        case["most"],
        case["tolerance"],
        case["max_probes"],
        case["max_s"],
    )


def bracket(probes: Sequence[Probed]) -> tuple[float | None, float | None]:
    """Return the answer so far and the smallest level that missed; None where there is none."""
    above = min((p.level for p in probes if p.outcome == "missed"), default=None)
    below = [p.level for p in probes if p.outcome == "met" and (above is None or p.level < above)]
    return max(below, default=None), above


def next_step(bounds: Bounds, probes: Sequence[Probed], elapsed_s: float) -> Step:
    """Return what a search does after some probes, in the order in which they were made."""
    step = _unbounded(bounds, probes)
    if step.level is None:
        return step
    if len(probes) >= bounds.max_probes:
        return Step(ended="probes")
    if elapsed_s >= bounds.max_s:
        return Step(ended="time")
    return step


def _unbounded(bounds: Bounds, probes: Sequence[Probed]) -> Step:
    if probes and probes[-1].outcome == "invalid":
        twice = sum(probe == probes[-1] for probe in probes) > 1
        return Step(ended="invalid") if twice else Step(probes[-1].level)
    met, missed = bracket(probes)
    if met is None:
        if missed is None:
            return Step(bounds.start)
        if bounds.whole and missed <= 1:
            return Step(ended="none")
        return Step(missed // 2 if bounds.whole else missed / 2)
    if missed is None:
        if met >= bounds.most:
            return Step(ended="most")
        return Step(min(2 * met, bounds.most))
    if missed - met <= max(1 if bounds.whole else 0, bounds.tolerance * met):
        return Step(ended="converged")
    middle = (met + missed) / 2
    return Step(float(int(middle)) if bounds.whole else middle)
