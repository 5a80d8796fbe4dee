"""A call of a named function as vLLM 0.32.0 (CPU, its parser `hermes`) streamed it.

The recording is of one prompt without and with `continuous_usage_stats`: 48 tokens in four events.
"""

import json
from pathlib import Path

import pytest
from test_load_records import EPOCH, record

from servemap.analysis.requests import parse_requests
from servemap.parsers.jsonl import JsonLine

RECORDED = Path(__file__).parent / "recorded/vllm_0.32.0_tool_call.jsonl"


def recorded(counts):
    """The record and the figures of the recorded stream; it was sent 110 ns after the epoch."""
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    reads = [(110 + one["ns"], f"{one['line']}\n\n".encode()) for one in lines
             if one["counts"] == counts]  # fmt: skip
    got = record(reads)
    (row,) = parse_requests([JsonLine(1, got)], {}).rows
    return got, row


def test_with_counts_on_each_event_nothing_is_guessed():
    """The parser had 28 tokens when it told the call's name; the last six never show."""
    got, row = recorded("each")
    assert (got["status"], got["kinds"]) == ("ok", "rccccrud")
    assert got["tokens"] == [0, 28, 40, 41, 42, 48, 48, None]
    assert row.chunk_tokens.tolist() == [28, 12, 1, 1, 6]
    assert row.ttft_s == pytest.approx(0.238, abs=0.001)
    assert row.e2e_s == pytest.approx(0.379, abs=0.001)
    assert row.flags == ("multi_token_chunks", "hidden_first_tokens", "prompt_tokens_differ")
    assert row.tpot_s is None
    assert row.req_output_tps == pytest.approx(48 / row.e2e_s)
    assert row.first_text_ns is None


def test_without_counts_no_speed_is_made_of_the_end_of_a_call():
    """48 tokens in the 137 ms between its events would be 2.9 ms a token."""
    got, row = recorded("total")
    assert (got["status"], got["kinds"]) == ("ok", "rccccrud")
    assert row.output_tokens == 48
    assert row.ttft_s == pytest.approx(0.700, abs=0.001)
    assert row.tpot_s is None
    assert {"chunk_tokens_estimated", "hidden_first_tokens"} <= set(row.flags)
    assert row.req_output_tps == pytest.approx(48 / row.e2e_s)
    assert got["last_ns"] == EPOCH + 110 + 836943765
