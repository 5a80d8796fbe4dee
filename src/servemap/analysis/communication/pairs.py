"""Copies between all pairs of cards of a node: their spread, and pairs that stand out."""

from statistics import median
from typing import Any, NamedTuple

from servemap.parsers.values import mapping, number, sequence

SLOW_SHARE = 0.8
"""A pair with less than this part of the median is slow."""
UNEQUAL_SHARE = 0.9
"""A pair of which one way has less than this part of the other is asymmetric."""
NO_GAIN = 1.1
"""Peer access that makes copies faster by less than this factor is without effect."""
BANDWIDTH = "bandwidth_bytes_per_s"

Pairs = dict[tuple[str, str], float]
"""Bytes/s by the labels of row and column, two different cards."""


class Figures(NamedTuple):
    """Spread of a matrix without its diagonal, bytes/s; pairs as (row, column)."""

    pairs: int
    least: float
    median: float
    most: float
    slow: tuple[tuple[str, str], ...]
    asymmetric: tuple[tuple[str, str], ...]
    """Each pair once, the slower way."""


def pairs_of(matrix: dict[str, Any]) -> Pairs:
    """Return the measured pairs of a matrix as the parsers give it; none without labels."""
    columns = [str(one) for one in sequence(matrix.get("columns"))]
    found = {}
    for label, row in zip(
        sequence(matrix.get("rows")), sequence(matrix.get(BANDWIDTH)), strict=False
    ):
        for column, value in zip(columns, sequence(row), strict=False):
            rate = number(value)
            if str(label) != column and rate is not None:
                found[str(label), column] = float(rate)
    return found


def figures(pairs: Pairs) -> Figures | None:
    """Return the spread of pairs and which of them stand out; None where there are none."""
    if not pairs:
        return None
    middle = median(pairs.values())
    return Figures(
        pairs=len(pairs),
        least=min(pairs.values()),
        median=middle,
        most=max(pairs.values()),
        slow=tuple(pair for pair, rate in pairs.items() if rate < SLOW_SHARE * middle),
        asymmetric=tuple(
            pair
            for pair, rate in pairs.items()
            if rate < UNEQUAL_SHARE * pairs.get((pair[1], pair[0]), rate)
        ),
    )


def without_effect(matrices: list[dict[str, Any]]) -> bool | None:
    """Return whether peer access makes no difference, by the medians with and without it.

    p2pBandwidthLatencyTest copies both ways; where the two are alike, the copies go through the
    host although peer access is said to be on. None where one of the two is not there.
    """
    found: dict[bool, float] = {}
    for matrix in map(mapping, matrices):
        spread = figures(pairs_of(matrix))
        if matrix.get("direction") == "unidirectional" and spread and matrix.get("p2p") is not None:
            found.setdefault(bool(matrix["p2p"]), spread.median)
    if len(found) < 2:
        return None
    return found[True] < NO_GAIN * found[False]
