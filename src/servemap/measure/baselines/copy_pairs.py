"""The pairs of cards that a program copied between, of the one matrix that is asked for."""

from typing import Any

from servemap.parsers.values import mapping, number, sequence

ONE_WAY = ("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce")
"""Tests of nvbandwidth that copy between two cards in one direction."""
BANDWIDTH = "bandwidth_bytes_per_s"
NAMED = 4
"""How many pairs a reason names."""


class NoPairsError(Exception):
    """Why an output has no rate of each pair, in words."""


def matrices_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the matrices between cards, of whichever program."""
    of_tests = [
        {"test": test.get("name"), "status": test.get("status"), **mapping(one)}
        for test in map(mapping, sequence(data.get("tests")))
        for one in sequence(test.get("matrices"))
    ]
    return of_tests or [mapping(one) for one in sequence(data.get("matrices"))]


def copy_pairs(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return {row, column, bandwidth_bytes_per_s} of each two cards, copied one way.

    The rate is None where nvbandwidth says N/A: one card has no access to the other
    (https://github.com/NVIDIA/nvbandwidth/blob/main/testcases_ce.cpp).

    Of p2pBandwidthLatencyTest it is the matrix of one direction with peer access. The other ones,
    which go both ways at once or through the host, never stand for it.

    Args:
        data: what `servemap parse` reads of nvbandwidth or p2pBandwidthLatencyTest.

    Raises:
        NoPairsError: that matrix is not there once, or lacks a card or a rate.
    """
    found = [one for one in matrices_of(data) if _is_one_way(one)]
    if len(found) != 1:
        count = f"{len(found)} matrices" if found else "no matrix"
        raise NoPairsError(f"it printed {count} of copies one way between cards")
    (matrix,) = found
    rows, columns = ([str(one) for one in sequence(matrix.get(key))] for key in ("rows", "columns"))
    cards = {str(mapping(one).get("index")) for one in sequence(data.get("devices"))} or set(rows)
    if sorted(rows) != sorted(cards) or sorted(columns) != sorted(cards):
        raise NoPairsError(
            f"its matrix has rows {' '.join(rows)} and columns {' '.join(columns) or 'unknown'} of "
            f"cards {' '.join(sorted(cards))}"
        )
    pairs = [
        {"row": row, "column": column, BANDWIDTH: rate}
        for row, values in zip(rows, sequence(matrix[BANDWIDTH]), strict=True)
        for column, rate in zip(columns, sequence(values), strict=True)
        if row != column
    ]
    no_access = "test" in matrix and any(one[BANDWIDTH] is not None for one in pairs)
    bad = [
        f"{one['row']} and {one['column']}"
        for one in pairs
        if not (no_access and one[BANDWIDTH] is None) and (number(one[BANDWIDTH]) or 0) <= 0
    ]
    if bad:
        more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise NoPairsError(f"it measured no rate between card {', '.join(bad[:NAMED])}{more}")
    return pairs


def _is_one_way(matrix: dict[str, Any]) -> bool:
    if matrix.get(BANDWIDTH) is None:
        return False
    if "test" in matrix:
        return matrix["test"] in ONE_WAY and matrix["status"] == "passed"
    return matrix.get("direction") == "unidirectional" and matrix.get("p2p") is True
