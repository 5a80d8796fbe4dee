"""Pairs of cards that stand out: made-up matrices and recorded ones."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.communication.pairs import figures, pairs_of, without_effect
from servemap.parsers.kinds import parse
from tests.corpus import read_sample


def matrix(rows: list[list[float | None]], **keys: Any) -> dict[str, Any]:
    labels = [str(index) for index in range(len(rows))]
    return {"columns": labels, "rows": labels, "bandwidth_bytes_per_s": rows, **keys}


def test_a_slow_pair_and_one_that_is_slower_one_way() -> None:
    found = figures(pairs_of(matrix([[900, 100, 100], [100, 900, 85], [100, 70, 900]])))
    assert found is not None
    assert (found.pairs, found.least, found.median, found.most) == (6, 70, 100, 100)
    assert found.slow == (("2", "1"),)
    assert found.asymmetric == (("2", "1"),)
    assert figures(pairs_of(matrix([[900]]))) is None
    assert figures(pairs_of({"rows": ["0"]})) is None


@given(st.lists(st.floats(1, 1e12), min_size=6, max_size=6))
def test_the_diagonal_counts_for_nothing(rates: list[float]) -> None:
    rows: list[list[float | None]] = [
        [None, *rates[:2]],
        [rates[2], 1e15, rates[3]],
        [*rates[4:], 0.0],
    ]
    found = figures(pairs_of(matrix(rows)))
    assert found is not None
    assert (found.least, found.most, found.pairs) == (min(rates), max(rates), 6)
    assert found.least <= found.median <= found.most


def test_recorded_eight_cards_are_alike() -> None:
    data = parse(
        "nvbandwidth", read_sample("p2p_bandwidth/004_nvbandwidth_readme_d2d_write.txt")
    ).data
    found = figures(pairs_of(data["tests"][0]["matrices"][0]))
    assert found is not None
    assert (found.pairs, found.slow, found.asymmetric) == (56, (), ())
    assert (found.least, found.most) == (274.89e9, 276.76e9)


def test_peer_access_that_changes_nothing_is_seen() -> None:
    data = parse("p2p-bandwidth", read_sample("p2p_bandwidth/002_p2p_4gpu_no_p2p.txt")).data
    # The excerpt has one row of this matrix.
    found = figures(pairs_of(data["matrices"][1]))
    assert found is not None and (found.pairs, found.least, found.most) == (3, 8.74e9, 8.75e9)
    fast = parse("p2p-bandwidth", read_sample("p2p_bandwidth/003_p2p_4gpu_nvlink_v100ish.txt")).data
    assert without_effect(fast["matrices"]) is False
    same = [
        matrix([[1, 8.7], [8.7, 1]], p2p=on, direction="unidirectional") for on in (True, False)
    ]
    assert without_effect(same) is True
    assert without_effect(same[:1]) is None
