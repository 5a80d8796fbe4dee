"""Tokens of answers that failed, and counts that what came contradicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import request

from servemap.analysis.failed import contradicted, partial_tokens
from servemap.analysis.metrics import figures
from servemap.analysis.requests import FLAG_REASONING, parse_requests
from servemap.parsers.jsonl import JsonLine


def rows(*records):
    return parse_requests([JsonLine(n, r) for n, r in enumerate(records, 1)], {}).rows


@pytest.mark.parametrize(
    ("kinds", "counts", "total", "partial"),
    [
        ("", [], None, 0),
        ("r", [None], None, 0),
        ("ttt", [], None, 3),
        ("rkct", [], None, 3),
        ("tte", [4, 8, None], 8, 8),
        # Hidden tokens show in the count alone.
        ("rr", [1, 2], None, 2),
        # A total that nothing that came could hold is a claim.
        ("ud", [5, None], 5, 0),
        ("tt", [None, None], 9, 9),
        ("tttt", [1, 1, 1, 1], 1, 4),
    ],
)
def test_partial_tokens(kinds, counts, total, partial):
    assert partial_tokens(kinds, counts, total) == partial


@given(
    st.lists(st.tuples(st.sampled_from("rtkcued"), st.none() | st.integers(0, 99)), max_size=20),
    st.none() | st.integers(0, 99),
)
def test_it_is_at_least_what_was_seen(events, total):
    kinds = "".join(kind for kind, _ in events)
    partial = partial_tokens(kinds, [count for _, count in events], total)
    assert partial >= sum(kind in "tkc" for kind in kinds)
    assert partial <= max([len(kinds), total or 0, *(count or 0 for _, count in events)])


def test_partial_tokens_are_apart_from_all_other_figures():
    good = request(1)
    cut = request(2, status="failed", kinds="tt", tokens=[7, 9], t_ns=[1, 2])
    hung = request(3, status="timed_out", kinds="r", tokens=None, t_ns=[1])
    block = figures(rows(good, cut, hung), 2.0)
    assert block["partial_output_tokens"] == 9
    assert (block["tokens"]["output_actual"], block["agg_output_tps"]) == (4, 2.0)
    assert [r.partial_output_tokens for r in rows(good, cut, hung)] == [None, 9, 0]
    assert figures(rows(good), 2.0)["partial_output_tokens"] == 0
    unknown = rows(cut)[0]._replace(partial_output_tokens=None)
    assert figures([unknown], 2.0)["partial_output_tokens"] is None


@pytest.mark.parametrize(
    ("came", "counted", "wrong"),
    [(0, None, False), (3, None, False), (0, 0, False), (3, 0, True), (3, 2, True), (3, 5, False)],
)
def test_fewer_counted_than_came_is_contradicted(came, counted, wrong):
    assert contradicted(came, counted) is wrong


def test_a_count_of_no_reasoning_beside_reasoning_is_missing_and_flagged():
    """So vLLM answers with a parser for templates that begin the thought themselves."""
    usage = {"prompt_tokens": 64, "completion_tokens": 4, "cached_tokens": 0}
    said = request(1, kinds="kkkkud", usage={**usage, "reasoning_tokens": 0})
    right = request(2, kinds="kkttud", usage={**usage, "reasoning_tokens": 3})
    found = rows(said, right)
    assert [(r.reasoning_tokens, FLAG_REASONING in r.flags) for r in found] == [
        (None, True), (3, False),
    ]  # fmt: skip
    assert figures(found, 1.0)["tokens"]["reasoning"] is None
