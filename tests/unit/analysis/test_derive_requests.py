import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_chunks import token_chunks
from runbuilder import MS, T0, S, request

from servemap.analysis import requests
from servemap.analysis.requests import parse_requests, read_requests
from servemap.onnode.checked import MOST_TOKENS
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


@pytest.mark.parametrize(
    "counts", [[10, 20, 30, 40, 4], [1, 2, 3, 9, 4], [2, 1, 3, 4, 4], [1, 1, 2, 2, 3]]
)
def test_counts_on_events_that_contradict_the_total_are_not_taken(counts):
    events = [(10 * (k + 1), "tttt"[k], counts[k]) for k in range(4)]
    row = parse(streamed([*events, (41, "u", counts[4])], 4)).rows[0]
    assert "token_counts_contradicted" in row.flags
    assert row.chunk_tokens.tolist() == [1] * 4
    assert row.itl_s == pytest.approx([0.01] * 3)
    assert row.tpot_s == pytest.approx(0.01)


def test_a_count_of_0_beside_text_says_no_more_than_none():
    events = [(10, "t", 0), (20, "t", 0), (30, "t", 1), (31, "u", 3)]
    row = parse(streamed(events, 3)).rows[0]
    assert row.ttft_s == pytest.approx(0.01)
    assert row.chunk_tokens.tolist() == [1] * 3


@pytest.mark.parametrize("kind", "tkc")
def test_what_comes_behind_the_last_growth_of_the_count_ends_the_answer(kind):
    events = [(10, "t", 2), (20, "t", 4), (50, kind, 4), (51, "u", 4)]
    row = parse(streamed(events, 4)).rows[0]
    assert row.e2e_s == pytest.approx(0.05)
    assert row.chunk_tokens.tolist() == [2, 2]
    assert row.tpot_s == pytest.approx(0.04 / 3)


def test_a_total_on_every_event_says_nothing_of_where_tokens_came():
    row = parse(streamed([(10 * (k + 1), "t", 8) for k in range(4)], 8)).rows[0]
    assert row.e2e_s == pytest.approx(0.04)
    assert row.chunk_tokens.tolist() == [2] * 4
    assert "chunk_tokens_estimated" in row.flags


def test_a_closing_empty_event_with_the_only_count_is_no_token():
    row = parse(streamed([(10, "t", None), (20, "t", None), (90, "r", 2)], 2)).rows[0]
    assert row.e2e_s == pytest.approx(0.02)
    assert row.flags == ()


def test_a_part_that_is_more_than_its_whole_is_not_known():
    row = one(usage={"prompt_tokens": 64, "completion_tokens": 4, "cached_tokens": 192})
    assert (row.cached_tokens, row.input_tokens) == (None, 64)
    assert row.flags == ("cached_count_contradicted",)
    row = one(usage={"prompt_tokens": 64, "completion_tokens": 4, "reasoning_tokens": 5})
    assert (row.reasoning_tokens, row.output_tokens) == (None, 4)
    assert row.flags == ("more_reasoning_than_output",)
    row = one(usage={"prompt_tokens": 64, "completion_tokens": 4, "cached_tokens": 64})
    assert (row.cached_tokens, row.flags) == (64, ())


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


@pytest.mark.parametrize(("more", "known"), [(0, True), (1, False)])
def test_a_count_that_the_client_refuses_is_damage_and_no_other(more, known):
    count = MOST_TOKENS + more
    row = parse(streamed([(10, "t", 1)], 1, usage={"prompt_tokens": count})).rows[0]
    assert row.input_tokens == (count if known else None)


def test_a_running_count_that_the_client_refuses_is_missing():
    row = parse(streamed([(10, "t", 1), (20, "t", MOST_TOKENS + 1), (30, "t", 3)], 3)).rows[0]
    assert row.chunk_tokens.tolist() == [1, 1, 1]


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
    st.tuples(
        st.integers(-1, 1000),
        st.sampled_from("rtkcuted"),
        st.integers(-2, 8),
    ),
    max_size=30,
)
SHRUNK = -2
AS_COUNTED = -1
ANSWER = st.tuples(
    EVENTS,
    st.none() | st.integers(0, 200) | st.just(AS_COUNTED),
    st.sampled_from(["none", "all", "some"]),
    st.none() | st.integers(0, 50),
    st.sampled_from(["ok", "failed"]),
)


def answer(number, events, total, counted, reasoning, status):
    """A raw record; a gap of -1 runs backwards, a count of -1 is none, of SHRUNK less by one."""
    times, counts = [], []
    for gap, _, _ in events:
        times.append(T0 if not times else times[-1] + gap * MS)
    for position, (_, _, n) in enumerate(events):
        known = counted == "all" or (counted == "some" and position % 3)
        told = [c for c in counts if c is not None]
        if n == SHRUNK and told:
            counts.append(max(told[-1] - 1, 0))
        else:
            counts.append((told[-1] if told else 0) + max(n, 0) if known and n >= 0 else None)
    if total == AS_COUNTED:
        total = max((c for c in counts if c is not None), default=None)
    return {
        **request(number, status=status),
        "t_ns": times,
        "kinds": "".join(kind for _, kind, _ in events),
        "tokens": None if counted == "none" else counts,
        "usage": {"completion_tokens": total, "prompt_tokens": 64, "reasoning_tokens": reasoning},
    }


@given(st.lists(ANSWER, min_size=1, max_size=6))
def test_all_answers_at_once_are_as_each_alone_by_the_plain_form(answers):
    records = [answer(number, *one) for number, one in enumerate(answers)]
    for row, record in zip(parse(*records).rows, records, strict=True):
        usage = record["usage"]
        total, reasoning = usage["completion_tokens"], usage["reasoning_tokens"]
        plain = token_chunks(
            record["t_ns"],
            record["kinds"],
            record["tokens"] or [],
            total,
            None if total is not None and (reasoning or 0) > total else reasoning,
        )
        apart = (
            "no_usage",
            "all_tokens_at_one_time",
            "reasoning_count_contradicted",
            "more_reasoning_than_output",
        )
        own = [f for f in row.flags if f not in apart]
        assert sorted(own) == sorted(plain.flags)
        assert row.first_ns == (int(plain.t_ns[0]) if plain.t_ns.size else None)
        if plain.t_ns.size:
            assert row.last_ns == plain.last_ns
        if row.status != "ok":
            continue
        assert row.chunk_tokens.tolist() == plain.tokens.tolist()
        assert row.chunk_gap_s == pytest.approx(np.diff(plain.t_ns) / 1e9)
        itl = np.repeat(np.diff(plain.t_ns) / 1e9 / plain.tokens[1:], plain.tokens[1:])
        assert row.itl_s == pytest.approx(itl)
        if plain.t_ns.size:
            assert row.itl_s.sum() == pytest.approx((plain.t_ns[-1] - plain.t_ns[0]) / 1e9)


VALUES = (
    st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.booleans()
)


@given(
    st.lists(st.integers(0, 2**66) | VALUES, max_size=6),
    st.text("rtkcued\u00e9", max_size=7) | VALUES,
    st.none()
    | st.lists(st.integers(0, 2**40) | st.none(), max_size=7)
    | st.lists(VALUES, max_size=6),
)
def test_a_line_is_read_as_its_decoded_record_is(tmp_path_factory, t_ns, kinds, tokens):
    record = {**request(), "t_ns": t_ns, "kinds": kinds, "tokens": tokens}
    path = tmp_path_factory.getbasetemp() / "line.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (found,) = read_requests(path, {}).rows
    (plain,) = parse(json.loads(path.read_text(), parse_constant=lambda _: None)).rows
    for name, value in found._asdict().items():
        assert np.array_equal(value, getattr(plain, name)), name


def test_lines_that_are_cut_or_no_json_are_skipped_and_said(tmp_path):
    path = tmp_path / "requests.jsonl"
    lines = [json.dumps(request(1)), "{broken", "[1]", "", json.dumps(request(2))]
    path.write_bytes("\n".join(lines).encode() + b"\n" + json.dumps(request(3)).encode()[:-40])
    found = read_requests(path, {})
    assert [row.id for row in found.rows] == ["main-main-000001", "main-main-000002"]
    assert [(s.line, s.reason) for s in found.skipped] == [
        (2, "not JSON"),
        (3, "not a JSON object"),
        (6, "truncated last line"),
    ]


def test_a_block_border_changes_nothing(monkeypatch):
    records = [request(n, sent_ms=n, osl=2 + n % 3) for n in range(7)]
    whole = parse(*records).rows
    monkeypatch.setattr(requests, "_BLOCK", 2)
    for one, other in zip(parse(*records).rows, whole, strict=True):
        assert all(
            np.array_equal(value, getattr(other, name)) for name, value in one._asdict().items()
        )
