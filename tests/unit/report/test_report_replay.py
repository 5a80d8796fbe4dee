"""A replay in the report's case table: mean lengths of its requests, and how they come."""

from servemap.report.results import _load, _replayed

ROW = {"kind": "replay", "requests": 4, "input_tokens_planned": 810, "output_tokens_planned": 30}
NONE = {**ROW, "requests": 0, "input_tokens_planned": None, "output_tokens_planned": None}


def test_lengths_are_means_of_what_was_planned() -> None:
    assert _replayed([{**ROW, "kind": "fixed"}]) is None
    assert _replayed([ROW]) == "trace, mean 202 / 8"
    assert _replayed([NONE, ROW]) == "trace, mean 202 / 8"
    assert _replayed([NONE]) == "trace"


def test_how_requests_come() -> None:
    assert _load([ROW], None, None).text == "its times"
    assert _load([ROW], 8, None).text == "8"
    assert _load([{"kind": "rate"}], None, 2.5).text == "2.5/s"
    assert _load([{"kind": "mixed"}], None, None).text == "-"
