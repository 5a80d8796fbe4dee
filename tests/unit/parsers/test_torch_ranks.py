"""Lines of ranks to rows: arithmetic worked out by hand, whatever stands between the lines."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.communication.busbw import busbw_factor
from servemap.parsers.communication.torch_ranks import (
    MARK,
    collective_rows,
    parse_rank_lines,
)


def line(rank: int, times_ns: list[Any], **keys: Any) -> str:
    facts = {
        "rank": rank, "operation": "all_reduce", "size_bytes": 3000, "count": 750,
        "type": "float32", "times_ns": times_ns, "wrong": 0, **keys,
    }  # fmt: skip
    return f"{MARK}{json.dumps(facts)}\n"


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 16, 1.875), ("all_gather", 2, 0.5),
        ("reduce_scatter", 8, 0.875), ("all_to_all", 4, 0.75),
    ],
)  # fmt: skip
def test_the_factors_are_those_of_nccl_tests(operation: str, ranks: int, factor: float) -> None:
    assert busbw_factor(operation, ranks) == factor


def test_a_factor_of_one_rank_or_another_operation_is_none() -> None:
    with pytest.raises(ValueError, match="1 ranks"):
        busbw_factor("all_reduce", 1)
    with pytest.raises(KeyError):
        busbw_factor("broadcast", 2)


def test_an_iteration_is_as_long_as_its_slowest_rank() -> None:
    log = line(0, [1000, 5000, 2000]) + "noise\n" + line(1, [3000, 1000, 2500], wrong=2)
    (row,), problems = collective_rows(parse_rank_lines(log), 2)
    assert not problems
    # The slowest of each iteration: 3, 5 and 2.5 us.
    assert row["time_s"] == pytest.approx({"min": 2.5e-6, "mean": 3.5e-6, "p50": 3e-6, "max": 5e-6})
    assert row["algbw_bytes_per_s"] == pytest.approx(1e9)
    assert row["busbw_bytes_per_s"] == pytest.approx(1e9)
    assert (row["wrong"], row["iterations"], row["count"]) == (2, 3, 750)
    assert row["rank_mean_s"] == pytest.approx([8e-6 / 3, 6.5e-6 / 3])


def test_a_row_of_which_a_rank_is_missing_is_left_out_and_said() -> None:
    log = line(0, [1000]) + line(0, [1], operation="all_gather") + line(1, [2000])
    rows, problems = collective_rows(parse_rank_lines(log), 2)
    assert [row["operation"] for row in rows] == ["all_reduce"]
    assert problems == ["all_gather of 3000 bytes: no times of rank 1"]


@pytest.mark.parametrize("times", [[], [0], [-5], ["x"], [1.5], [None], [True]])
def test_times_that_are_none_are_missing(times: list[Any]) -> None:
    rows, problems = collective_rows(parse_rank_lines(line(0, [10]) + line(1, times)), 2)
    assert (rows, problems) == ([], ["all_reduce of 3000 bytes: no times of rank 1"])


def test_values_that_were_not_checked_are_missing_and_not_right() -> None:
    log = line(0, [10]) + line(1, [10], wrong=None)
    (row,), _ = collective_rows(parse_rank_lines(log), 2)
    assert row["wrong"] is None


def test_a_mark_behind_something_else_is_read_and_a_cut_line_is_not() -> None:
    whole = line(0, [10])
    found = parse_rank_lines("host:1:2 [0] NCCL INFO x " + whole + whole[:-20] + "\n")
    assert list(found.times) == [("all_reduce", 3000)]


def test_ranks_say_who_they_are_why_they_gave_up_and_that_they_are_done() -> None:
    said = [{"rank": 0, "world": 2, "backend": "gloo"}, {"rank": 1, "error": "RuntimeError: no"},
            {"rank": 1, "error": "later"}, {"rank": 0, "done": True}]  # fmt: skip
    found = parse_rank_lines("".join(f"{MARK}{json.dumps(one)}\n" for one in said))
    assert found.hello[0]["backend"] == "gloo"
    assert found.errors == {1: "RuntimeError: no"}
    assert found.done == {0}


@given(st.text(), st.lists(st.integers(1, 10**12), min_size=1, max_size=9), st.integers(2, 9))
def test_noise_between_the_lines_changes_no_row(noise: str, times: list[int], world: int) -> None:
    lines = [line(rank, times) for rank in range(world)]
    clean = collective_rows(parse_rank_lines("".join(lines)), world)
    noise = noise.replace(MARK, "")
    assert collective_rows(parse_rank_lines(f"\n{noise}\n".join(lines)), world) == clean
    (row,) = clean[0]
    assert row["time_s"]["min"] <= row["time_s"]["p50"] <= row["time_s"]["max"]


@given(st.text(), st.dictionaries(st.text(max_size=9), st.integers() | st.text() | st.none()))
def test_no_text_is_more_than_passed_over(text: str, facts: dict[str, Any]) -> None:
    found = parse_rank_lines(f"{text}\n{MARK}{text}\n{MARK}{json.dumps({**facts, 'rank': 0})}")
    collective_rows(found, 2)


@pytest.mark.parametrize("wrong", [None, -7, "0", 1.5, True])
def test_a_rank_that_does_not_count_its_wrong_values_hides_none(wrong: Any) -> None:
    log = line(0, [10], wrong=7) + line(1, [10], wrong=wrong)
    (row,), _ = collective_rows(parse_rank_lines(log), 2)
    assert row["wrong"] is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (line(1, [10]) + line(1, [1]), "a rank tells of it more than once"),
        (line(1, [10], type="int8"), "the ranks tell of different values"),
        (line(1, [10], count=5), "the ranks tell of different values"),
    ],
)
def test_ranks_that_contradict_each_other_have_no_row(more: str, said: str) -> None:
    rows, problems = collective_rows(parse_rank_lines(line(0, [10]) + more), 2)
    assert (rows, problems) == ([], [f"all_reduce of 3000 bytes: {said}"])
