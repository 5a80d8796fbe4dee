"""Pairs, nodes and ranks that are slower than the others: made-up records."""

from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.communication.spread import (
    COLUMNS,
    LIMIT,
    comparisons,
    slower,
    spread_rows,
)
from servemap.analysis.verdict import default_limits

GB = 1e9


def tcp(*pairs: tuple[str, str, float], **keys: Any) -> dict[str, Any]:
    results = [
        {"from": a, "to": b, "status": "ok", "bandwidth_bytes_per_s": rate * GB}
        for a, b, rate in pairs
    ]
    return {"kind": "tcp", "status": "ok", "results": results, **keys}


def collective(*parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"kind": "collective", "status": "ok", "results": list(parts), **keys}


def part(nodes: list[str], rates: dict[int, float], **keys: Any) -> dict[str, Any]:
    rows = [
        {"operation": "all_reduce", "size_bytes": size, "busbw_bytes_per_s": rate * GB}
        for size, rate in rates.items()
    ]
    return {"nodes": nodes, "status": "ok", "world": 8, "settings": {}, "rows": rows, **keys}


def rows_of(record: dict[str, Any], limit: float = 0.2) -> list[dict[str, Any]]:
    rows = spread_rows({"b": record}, {LIMIT: limit})
    assert all(tuple(row) == COLUMNS for row in rows)
    return rows


def named(record: dict[str, Any], limit: float = 0.2) -> list[tuple[str, str]]:
    return [(row["comparison"], row["place"]) for row in rows_of(record, limit) if not row["ok"]]


def test_of_two_nodes_the_slow_direction_is_named() -> None:
    record = tcp(("head", "worker", 0.036), ("worker", "head", 0.12))
    slow, quick = rows_of(record)
    assert (slow["place"], slow["bytes_per_s"], slow["others_bytes_per_s"]) == (
        "head to worker", 0.036e9, 0.12e9,
    )  # fmt: skip
    assert slow["slower_by"] == pytest.approx(0.7)
    assert (slow["ok"], quick["ok"]) == (False, True)
    assert quick["slower_by"] == pytest.approx(1 - 0.12 / 0.036)
    assert slower(rows_of(record)) == [
        "baseline b: head to worker is slower than the others by 70% (TCP bandwidth; limit 20%): "
        "what the first node sends, or what the second one receives, is slow"
    ]


def test_of_three_nodes_the_one_that_receives_slowly_is_named() -> None:
    rates = {(a, b): 1.0 for a in "abc" for b in "abc" if a != b}
    rates["a", "c"] = rates["b", "c"] = 0.1
    record = tcp(*((a, b, rate) for (a, b), rate in rates.items()))
    assert named(record) == [
        ("pair", "a to c"),
        ("pair", "b to c"),
        ("receives", "what c receives"),
    ]


def test_a_single_slow_pair_blames_neither_of_its_nodes() -> None:
    rates = {(a, b): 1.0 for a in "abc" for b in "abc" if a != b} | {("a", "c"): 0.1}
    assert named(tcp(*((a, b, rate) for (a, b), rate in rates.items()))) == [("pair", "a to c")]


def test_nodes_are_compared_at_the_largest_size_and_like_with_like() -> None:
    parts = [
        part(["n1"], {8192: 0.001, 1 << 26: 200}),
        part(["n2"], {8192: 0.900, 1 << 26: 190}),
        part(["n3"], {8192: 0.900, 1 << 26: 100}),
        part(["n4"], {1 << 26: 1}, settings={"NCCL_ALGO": "Tree"}),
        part(["n5"], {1 << 26: 1}, world=2),
        part(["n1", "n2"], {1 << 26: 20}),
        part(["n6"], {1 << 26: 1}, status="failed"),
    ]
    rows = rows_of(collective(*parts))
    assert {row["place"] for row in rows} == {"n1", "n2", "n3"}
    assert named(collective(*parts)) == [("node", "n3")]
    assert rows[2]["figure"] == f"busbw of all_reduce of {1 << 26} bytes"
    assert rows[2]["slower_by"] == pytest.approx(1 - 100 / 195)


def test_a_value_of_a_sweep_stands_beside_what_is_slower() -> None:
    set_to = {"settings": {"NCCL_ALGO": "Tree"}}
    parts = [part(["n1"], {1 << 20: 2.0}, **set_to), part(["n2"], {1 << 20: 1.0}, **set_to)]
    (said,) = slower(rows_of(collective(*parts)))
    assert "n2 is slower than the others by 50% (busbw of all_reduce of 1048576 bytes" in said
    assert "NCCL_ALGO=Tree; limit 20%)" in said


def test_a_rank_that_has_its_result_late_is_named_with_its_node() -> None:
    ranks = [{"rank": 0, "node": "n1"}, {"rank": 1, "node": "n1"}, {"rank": 2, "node": "n2"}]
    one = part(["n1", "n2"], {1 << 20: 1.0}, ranks=ranks)
    one["rows"][0]["rank_mean_s"] = [0.001, 0.0011, 0.002]
    assert named(collective(one)) == [("rank", "rank 2 on n2")]
    assert rows_of(collective(one))[0]["bytes_per_s"] == (1 << 20) / 0.001
    one["rows"][0]["rank_mean_s"] = None  # nccl-tests print one line for all ranks
    assert rows_of(collective(one)) == []


def test_copies_are_compared_by_the_median_of_each_node() -> None:
    def node(name: str, rate: float) -> dict[str, Any]:
        pairs = [
            {"row": "0", "column": "1", "bandwidth_bytes_per_s": rate},
            {"row": "1", "column": "0", "bandwidth_bytes_per_s": rate},
        ]
        return {"nodes": [name], "status": "ok", "pairs": pairs}

    record = {"kind": "copies", "results": [node("n1", 100e9), node("n2", 70e9)]}
    assert named(record) == [("copies", "n2")]
    assert named(record, limit=0.31) == []


def test_what_is_alone_or_damaged_has_no_row() -> None:
    assert rows_of(tcp(("a", "a", 1.0))) == []
    assert rows_of({"kind": "tcp", "results": [{"status": "ok"}, "x", None]}) == []
    assert rows_of({"kind": "collective", "results": [{"status": "ok", "rows": [{}], "nodes": []}]}) == []  # fmt: skip  # noqa: E501
    assert rows_of({"kind": "another"}) == []
    assert rows_of({}) == []


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=12), st.floats(0, 1))
def test_what_is_named_is_below_the_median_of_the_others_and_never_the_quickest(
    rates: list[float], limit: float
) -> None:
    parts = [part([f"n{index}"], {1 << 20: rate}) for index, rate in enumerate(rates)]
    rows = rows_of(collective(*parts), limit)
    assert len(rows) == len(rates)
    for index, row in enumerate(rows):
        others = median(rates[:index] + rates[index + 1 :])
        assert row["slower_by"] == pytest.approx(1 - rates[index] / others)
        assert row["ok"] == (row["slower_by"] <= limit)
    quickest = max(rows, key=lambda row: row["bytes_per_s"])
    assert quickest["slower_by"] <= 0 and quickest["ok"]


def test_every_comparison_is_one_of_the_table_and_the_limit_has_a_default() -> None:
    assert set(comparisons()) == {"pair", "sends", "receives", "node", "copies", "rank"}
    assert default_limits()[LIMIT] == 0.2
    assert all(one.means and one.remedy and one.compares for one in comparisons().values())
