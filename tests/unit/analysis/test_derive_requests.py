import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import MS, T0, S, request

from servemap.analysis.requests import parse_requests, token_chunks
from servemap.parsers.jsonl import JsonLine


def parse(*records, overlaps=None):
    return parse_requests([JsonLine(n, r) for n, r in enumerate(records, 1)], overlaps or {})


def one(*args, **kwargs):
    return parse(request(*args, **kwargs)).rows[0]


def streamed(events, completion, **changes):
    """A request sent at T0 whose events are (ms, kind, cumulative tokens)."""
    usage = {"prompt_tokens": 64, "completion_tokens": completion, "cached_tokens": None}
    return request(
        t_ns=[T0 + int(ms * MS) for ms, _, _ in events],
        kinds="".join(kind for _, kind, _ in events),
        tokens=[count for _, _, count in events],
        usage={**usage, **changes.pop("usage", {})},
        **changes,
    )


def test_definitions_on_a_plain_stream():
    row = one(ttft_ms=50, gap_ms=10, osl=5)
    assert row.ttft_s == pytest.approx(0.050)
    assert row.e2e_s == pytest.approx(0.090)
    assert row.tpot_s == pytest.approx(0.010)
    assert row.req_output_tps == pytest.approx(5 / 0.040)
    assert row.itl_s == pytest.approx([0.01] * 4)
    assert row.chunk_tokens.tolist() == [1] * 5
    assert row.flags == ()


def test_one_token_has_no_tpot_and_no_tps():
    row = one(osl=1)
    assert row.ttft_s == pytest.approx(0.05)
    assert (row.tpot_s, row.req_output_tps, row.itl_s.size) == (None, None, 0)


def test_four_tokens_in_one_event_are_four_itls():
    row = parse(streamed([(100, "t", 1), (200, "t", 5), (200, "d", None)], 5)).rows[0]
    assert row.itl_s == pytest.approx([0.025] * 4)
    assert row.tpot_s == pytest.approx(0.025)
    assert row.chunk_gap_s == pytest.approx([0.1])
    assert row.chunk_tokens.tolist() == [1, 4]
    assert "multi_token_chunks" in row.flags


def test_a_role_chunk_is_no_token():
    row = parse(streamed([(20, "r", None), (100, "t", None), (120, "t", None)], 2)).rows[0]
    assert row.ttft_s == pytest.approx(0.1)
    assert row.tpot_s == pytest.approx(0.02)


def test_buffered_tokens_count_from_the_first_growth_of_the_servers_count():
    events = [(10 * (k + 1), "r", k + 1) for k in range(20)] + [(210, "t", 21), (220, "t", 22)]
    row = parse(streamed(events, 22)).rows[0]
    assert row.ttft_s == pytest.approx(0.010)
    assert (row.first_text_ns - row.sent_ns) / 1e9 == pytest.approx(0.210)
    assert row.tpot_s == pytest.approx(0.010)


def test_a_first_chunk_that_hides_tokens_is_flagged_and_speed_uses_the_whole_time():
    events = [(5000, "t", 300)] + [(5000 + 20 * k, "t", 300 + k) for k in range(1, 101)]
    row = parse(streamed(events, 400)).rows[0]
    assert "hidden_first_tokens" in row.flags
    assert row.req_output_tps == pytest.approx(400 / 7.0)
    assert row.tpot_s is None
    assert row.itl_s == pytest.approx([0.02] * 100)


def test_reasoning_that_was_counted_and_never_sent_is_hidden_in_the_first_chunk():
    events = [(5000 + 20 * k, "t", None) for k in range(101)]
    row = parse(streamed(events, 401, usage={"reasoning_tokens": 300})).rows[0]
    assert "hidden_first_tokens" in row.flags
    assert row.chunk_tokens.tolist() == [301] + [1] * 100
    assert row.itl_s == pytest.approx([0.02] * 100)


def test_reasoning_and_tool_tokens_are_tokens():
    row = parse(streamed([(10, "k", None), (20, "c", None), (30, "t", None)], 3)).rows[0]
    assert row.ttft_s == pytest.approx(0.01)
    assert (row.first_text_ns - row.sent_ns) / 1e9 == pytest.approx(0.03)


def test_the_servers_count_wins_over_the_number_of_events():
    """Asked 512, stopped after 37; the last chunk has empty text and the usage."""
    events = [(10 * (k + 1), "t", None) for k in range(36)] + [(370, "u", 37)]
    row = parse(streamed(events, 37, osl=512)).rows[0]
    assert (row.output_tokens, row.output_planned) == (37, 512)
    assert row.tpot_s == pytest.approx(0.350 / 36)
    assert row.itl_s.sum() == pytest.approx(0.350)
    assert row.itl_s.size == 36


def test_tokens_without_per_event_counts_are_spread_evenly_and_flagged():
    events = [(100 * (k + 1), "t", None) for k in range(16)]
    row = parse(streamed(events, 64)).rows[0]
    assert row.chunk_tokens.tolist() == [4] * 16
    assert row.itl_s == pytest.approx([0.025] * 60)
    assert row.tpot_s == pytest.approx(1.5 / 63)
    assert {"chunk_tokens_estimated", "multi_token_chunks"} <= set(row.flags)


def test_more_chunks_than_tokens_is_flagged():
    row = parse(streamed([(10, "t", None), (20, "t", None), (30, "t", None)], 2)).rows[0]
    assert "more_chunks_than_tokens" in row.flags
    assert row.output_tokens == 2


def test_a_token_that_never_showed_gives_an_upper_bound():
    row = parse(streamed([(40, "r", None), (41, "u", None), (42, "d", None)], 1)).rows[0]
    assert row.ttft_s == pytest.approx(0.040)
    assert row.flags == ("first_token_not_visible",)


def test_no_usage_means_unknown_tokens_never_planned_ones():
    row = one(osl=4, usage=None)
    assert row.output_tokens is None
    assert (row.tpot_s, row.req_output_tps) == (None, None)
    assert row.ttft_s is not None
    assert "no_usage" in row.flags


def test_prompt_counted_differently_by_the_server():
    usage = {"prompt_tokens": 1107, "completion_tokens": 4}
    row = one(isl=1024, usage=usage)
    assert (row.input_planned, row.input_tokens) == (1024, 1107)
    assert "prompt_tokens_differ" in row.flags


def test_a_failed_request_keeps_its_times_and_gives_no_latency():
    events = [(10 * (k + 1), "t", k + 1) for k in range(10)] + [(110, "e", None), (111, "d", None)]
    error = {"class": "stream_error", "message": "out of memory"}
    row = parse(streamed(events, 10, status="failed", error=error)).rows[0]
    assert row.error == "stream_error: out of memory"
    assert row.first_ns == T0 + 10 * MS
    assert (row.ttft_s, row.tpot_s, row.e2e_s, row.req_output_tps) == (None,) * 4
    assert row.itl_s.size == row.chunk_gap_s.size == row.chunk_tokens.size == 0


def test_warm_up_is_counted_and_left_out():
    requests = parse(request(1, warmup=True), request(2, warmup=True, status="failed"), request(3))
    assert [r.id for r in requests.rows] == ["main-main-000003"]
    assert (requests.warmup_ok, requests.warmup_failed) == (1, 1)


def test_a_request_that_is_there_twice_counts_once():
    requests = parse(request(1), request(1))
    assert len(requests.rows) == 1
    assert "twice" in requests.skipped[0].reason


@pytest.mark.parametrize(
    "damage",
    [
        {"t_ns": None},
        {"t_ns": ["x"] * 6},
        {"kinds": 3},
        {"kinds": ""},
        {"usage": []},
        {"usage": {"completion_tokens": -5, "prompt_tokens": 10**30}},
        {"sent_ns": None},
        {"sent_ns": T0 + 10 * S},
        {"tokens": [9, 1, 1, 1]},
        {"t_ns": [T0 + k * MS for k in (9, 8, 7, 6, 5, 4)]},
        {"error": "text"},
        {"segment": None, "stream": 4},
    ],
)
def test_damaged_records_give_rows_without_nonsense(damage):
    row = parse({**request(), **damage}).rows[0]
    for value in (row.ttft_s, row.e2e_s, row.tpot_s, row.req_output_tps):
        assert value is None or value >= 0
    assert (row.itl_s >= 0).all()


@pytest.mark.parametrize("damage", [{"status": "great"}, {"status": None}, {"id": 4}])
def test_what_is_no_request_is_skipped_with_its_line(damage):
    requests = parse(request(1), {**request(2), **damage})
    assert len(requests.rows) == 1
    assert requests.skipped[0].line == 2


def test_each_itl_is_tagged_by_overlap_with_an_injected_request():
    record = streamed([(0, "t", 1), (10, "t", 2), (30, "t", 4), (40, "t", 5)], 5)
    overlaps = {"main": [(T0 + 12 * MS, T0 + 25 * MS)]}
    row = parse(record, overlaps=overlaps).rows[0]
    assert row.itl_overlaps_injection.tolist() == [False, True, True, False]


def test_a_gap_that_only_touches_an_injection_does_not_overlap_it():
    record = streamed([(0, "t", 1), (10, "t", 2), (20, "t", 3)], 3)
    row = parse(record, overlaps={"main": [(T0 - 5 * MS, T0), (T0 + 10 * MS, T0 + 12 * MS)]}).rows[
        0
    ]
    assert row.itl_overlaps_injection.tolist() == [False, True]


def test_reasoning_that_was_sent_is_not_hidden():
    """Ten events with two tokens each, the first five reasoning: nothing hides in the first."""
    events = [(10 * (k + 1), "k" if k < 5 else "t", None) for k in range(10)]
    row = parse(streamed(events, 20, usage={"reasoning_tokens": 10})).rows[0]
    assert row.chunk_tokens.tolist() == [2] * 10
    assert "hidden_first_tokens" not in row.flags


EVENTS = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from("rtkcuted"), st.integers(0, 8)), max_size=30
)


@given(EVENTS, st.none() | st.integers(0, 200), st.booleans(), st.none() | st.integers(0, 50))
def test_itls_add_up_to_the_decode_time(events, total, counted, reasoning):
    times = np.cumsum([gap for gap, _, _ in events]).tolist()
    kinds = "".join(kind for _, kind, _ in events)
    counts = np.cumsum([n for _, _, n in events]).tolist() if counted else []
    chunks = token_chunks(times, kinds, counts, total, reasoning)
    assert (chunks.tokens > 0).all()
    assert chunks.t_ns.size == chunks.tokens.size
    gaps = np.diff(chunks.t_ns)
    itl = np.repeat(gaps / chunks.tokens[1:], chunks.tokens[1:])
    if chunks.t_ns.size:
        assert itl.sum() == pytest.approx(chunks.t_ns[-1] - chunks.t_ns[0])
    estimated = "chunk_tokens_estimated" in chunks.flags or not chunks.flags
    if total and chunks.t_ns.size and not counted and estimated:
        assert chunks.tokens.sum() == total
