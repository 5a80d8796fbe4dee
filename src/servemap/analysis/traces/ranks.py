"""Across ranks: clocks, who arrives late at collectives, and who waits for whom.

A collective ends on all ranks at about the same time, so the median difference of the ends is the
difference of two clocks. What is left after it is taken away is how well the clocks agree. Times
of arrival mean nothing below that.
"""

from dataclasses import dataclass

import numpy as np

from servemap.analysis.traces.collectives import Matched
from servemap.parsers.traces.table import Ints

UNTOLD = "cannot be told: "
FEWEST = 10
"""Fewer collectives say nothing about who is late."""

_UNLIKELY = 0.001
LARGEST = 10


@dataclass(frozen=True)
class RankTiming:
    """One rank: its clock against the first rank's, and its part in waiting.

    `late` counts the collectives at which it came last by more than the clocks' error;
    `late_mean_ns` is how long the others had then been waiting for it (from the last but one),
    `waiting_ns` how long it waited itself.
    """

    rank: int
    offset_ns: int
    error_ns: int
    late: int
    late_mean_ns: float | None
    waiting_ns: int


@dataclass(frozen=True)
class LateCollective:
    """A collective with a large skew."""

    name: str
    number: int
    skew_ns: int
    late_rank: int
    start_ns: int


@dataclass(frozen=True)
class PhaseWaiting:
    """Collectives of one phase; `waiting_ns` is of all ranks together."""

    phase: str
    collectives: int
    skew_p50_ns: float
    skew_max_ns: int
    waiting_ns: int


@dataclass(frozen=True)
class AcrossRanks:
    """Arrival at the collectives that all ranks share; skew is from first to last arrival."""

    matched: int
    unmatched: int
    skew_p50_ns: float
    skew_p95_ns: float
    skew_max_ns: int
    below_error: int
    ranks: list[RankTiming]
    phases: list[PhaseWaiting]
    latest_rank: int | None
    straggler: str
    largest: list[LateCollective]


def clock_offsets(matched: Matched) -> tuple[Ints, Ints]:
    """Return for each rank what its clock is ahead of the first rank's, and the error of that, ns.

    The error is the half width of the middle half of the differences.
    """
    ahead = matched.end - matched.end[0]
    offset = np.median(ahead, axis=1).astype(np.int64)
    low, high = np.percentile(ahead, [25, 75], axis=1)
    return offset, np.ceil((high - low) / 2).astype(np.int64)


def chance_of(late: int, collectives: int, ranks: int) -> float:
    """Return the chance that some rank is last so often or more if each is equally likely last."""
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, collectives + 1)))))
    count = np.arange(late, collectives + 1)
    others = collectives - count
    tail = np.exp(
        logs[-1] - logs[count] - logs[others]
        + others * np.log(max(ranks - 1, 1))
        - collectives * np.log(ranks)
    ).sum()  # fmt: skip
    return min(1.0, float(ranks * tail))


def across_ranks(numbers: list[int], matched: Matched) -> AcrossRanks | None:
    """Return who is late and who waits; None where the ranks share no collective."""
    if not matched.names or len(numbers) < 2:
        return None
    offset, error = clock_offsets(matched)
    start = matched.start - offset[:, None]
    first, last = start.min(axis=0), start.max(axis=0)
    skew = last - first
    late_rank = start.argmax(axis=0)
    second = np.sort(start, axis=0)[-2]
    waited = np.minimum(last - start, np.maximum(matched.end - matched.start, 0))
    # A skew within the error of the clocks names no rank.
    clear = skew > error.max()
    counts = np.bincount(late_rank[clear], minlength=len(numbers))
    timings = []
    for at, number in enumerate(numbers):
        mine = clear & (late_rank == at)
        lateness = (last - second)[mine]
        timings.append(
            RankTiming(
                number,
                int(offset[at]),
                int(error[at]),
                int(counts[at]),
                float(lateness.mean()) if mine.any() else None,
                int(waited[at].sum()),
            )
        )
    top = np.argsort(-skew, kind="stable")[:LARGEST]
    return AcrossRanks(
        matched=len(matched.names),
        unmatched=matched.unmatched,
        skew_p50_ns=float(np.percentile(skew, 50)),
        skew_p95_ns=float(np.percentile(skew, 95)),
        skew_max_ns=int(skew.max()),
        below_error=int((~clear).sum()),
        ranks=timings,
        phases=_by_phase(matched.phases, skew, waited.sum(axis=0)),
        latest_rank=numbers[int(counts.argmax())] if clear.any() else None,
        straggler=_straggler(numbers, counts),
        largest=[
            LateCollective(
                matched.names[at],
                int(at),
                int(skew[at]),
                numbers[int(late_rank[at])],
                int(first[at]),
            )
            for at in top
        ],
    )


def _by_phase(phases: list[str], skew: Ints, waited: Ints) -> list[PhaseWaiting]:
    found = []
    for phase in dict.fromkeys(phases):
        mine = np.array([one == phase for one in phases], np.bool_)
        p50, longest = float(np.percentile(skew[mine], 50)), int(skew[mine].max())
        found.append(PhaseWaiting(phase, int(mine.sum()), p50, longest, int(waited[mine].sum())))
    return found


def _straggler(numbers: list[int], late: Ints) -> str:
    """Say whether one rank is late by rule, with the numbers behind it."""
    whole = int(late.sum())
    if whole < FEWEST:
        return (
            f"{UNTOLD}at {whole} collectives the skew is larger than the error of the "
            f"clocks, {FEWEST} are needed"
        )
    top = int(late.argmax())
    said = f"rank {numbers[top]} is last at {late[top]} of {whole} collectives"
    if chance_of(int(late[top]), whole, len(numbers)) < _UNLIKELY:
        return f"fixed: {said}"
    return f"random: {said}, which chance alone may explain"
