"""Replays: what a trace lets a server reuse, and the lag behind the pauses of a closed loop."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.analysis.cached import EngineHits
from servemap.analysis.checks.client import check_schedule
from servemap.analysis.checks.reuse import check_reuse
from servemap.analysis.replay import (
    Prompts,
    matched,
    paused,
    planned_reuse,
    replay_figures,
    reusable,
    shares,
)
from servemap.analysis.requests import parse_requests
from servemap.analysis.verdict import default_limits
from servemap.onnode import load_prompts
from servemap.onnode.load_spec import Recorded
from servemap.parsers.jsonl import JsonLine
from tests.unit.onnode.ref_process import Load, measure

LIMITS = default_limits()
IDS = [str(token) for token in range(300, 40_000)]


def load_of(rows: list[dict[str, Any]], **stream: Any) -> dict[str, Any]:
    whole = {"name": "main", "kind": "replay", "requests": rows, "block_tokens": 16, **stream}
    return {"segments": [{"name": "main", "streams": [whole]}]}


def requests_of(*rows: tuple[int, int, int, int, int | None]) -> Any:
    """Requests as (number, sent, first token, input tokens, cached tokens); times in ms."""
    records = [
        {
            "id": f"main-{number:06d}", "segment": "main", "stream": "main", "status": "ok",
            "isl": isl, "osl": 1, "scheduled_ns": sent * 10**6 - 10**6, "sent_ns": sent * 10**6,
            "t_ns": [first * 10**6], "kinds": "t", "tokens": [1],
            "usage": {"prompt_tokens": isl, "completion_tokens": 1, "cached_tokens": cached},
        }
        for number, sent, first, isl, cached in rows
    ]  # fmt: skip
    return parse_requests([JsonLine(i, row) for i, row in enumerate(records, 1)], {}).rows


ROW = st.fixed_dictionaries(
    {"isl": st.integers(1, 60)},
    optional={
        "conversation": st.sampled_from("ab"),
        "blocks": st.lists(st.integers(0, 3), min_size=1, max_size=4),
    },
)


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.integers(1, 20))
def test_what_is_shared_is_what_the_client_makes_alike(rows: list[Any], size: int) -> None:
    """The counted tokens are those of the longest common beginning of the prompts themselves."""
    maker, counted = load_prompts.Prompts("s", IDS), Prompts(size)
    made: list[list[str]] = []
    for ordinal, row in enumerate(rows):
        blocks = tuple(row.get("blocks", ()))
        recorded = Recorded(row["isl"], 1, row.get("conversation"), blocks)
        prompt = maker.replayed(ordinal, recorded, size)
        common = 0
        for earlier in made:
            alike = 0
            while alike < min(len(earlier), len(prompt)) and earlier[alike] == prompt[alike]:
                alike += 1
            common = max(common, alike)
        assert counted.shared(row) == min(common, row["isl"] - 1)
        counted.add(row)
        made.append(prompt)


def test_a_turn_can_reuse_the_one_before_and_no_later_one() -> None:
    rows = [{"isl": 64, "conversation": "a"}, {"isl": 128, "conversation": "a"}]
    stream = load_of(rows, concurrency=1)["segments"][0]["streams"][0]
    after = reusable(stream, requests_of((1, 0, 5, 64, 0), (2, 10, 15, 128, 64)))
    assert after == (64 / 192, 64 / 192)
    # Sent while the other one's prefill goes on: what is found is the server's affair.
    beside = reusable(stream, requests_of((1, 0, 5, 64, 0), (2, 3, 15, 128, 64)))
    assert beside == (0, 64 / 192)
    # A prompt that was there whole is computed from its last token on; caches keep whole blocks.
    again = reusable(
        load_of([rows[0], rows[0]], concurrency=1)["segments"][0]["streams"][0],
        requests_of((1, 0, 5, 64, 0), (2, 10, 15, 64, 48)),
    )
    assert again == (48 / 128, 63 / 128)
    assert reusable(stream, []) is None
    assert planned_reuse(rows, 16) == 64 / 192
    assert planned_reuse([], 16) == 0


@pytest.mark.parametrize(
    ("cached", "counters", "ok", "says"),
    [
        (64, None, True, "33.3% to 33.3% of the input came before, 33.3% reached"),
        (0, None, False, "0.0% reached"),
        (128, None, False, "66.7% reached"),
        (64, 0.25, True, "33.3% reached by usage (25.0% by the engine's counters"),
        (64, 0.0, False, "33.3% reached by usage (0.0% by the engine's counters"),
        (64, 0.9, True, "33.3% reached by usage (90.0% by the engine's counters"),
        (None, 0.34, True, "34.0% reached by the engine's counters, between scrapes"),
        (None, None, None, "does not report cached tokens"),
    ],
)
def test_the_reached_share_against_the_trace(
    cached: int | None, counters: float | None, ok: bool | None, says: str
) -> None:
    load = load_of([{"isl": 64, "conversation": "a"}, {"isl": 128, "conversation": "a"}])
    load["segments"][0]["streams"][0]["concurrency"] = 1
    rows = requests_of((1, 0, 5, 64, None if cached is None else 0), (2, 10, 15, 128, cached))
    engine = None if counters is None else EngineHits(counters, 1.0, 2.0)
    (check,) = check_reuse(load, rows, engine, LIMITS)
    assert (check.name, check.ok) == ("cached_share_vs_trace", ok)
    assert says in check.note
    assert check_reuse(load, [], None, LIMITS)[0].ok is None


def test_a_trace_of_unique_prompts_has_no_such_check() -> None:
    load = load_of([{"isl": 5, "at_s": 0.0}])
    assert check_reuse(load, requests_of((1, 0, 5, 5, 0)), None, LIMITS) == []
    assert not shares(load["segments"][0]["streams"][0])
    assert replay_figures({"segments": []}, []) is None
    assert check_reuse({}, [], None, LIMITS) == []


def test_an_open_loop_is_numbered_by_its_times() -> None:
    rows = [{"isl": 7, "at_s": 2.0}, {"isl": 8, "at_s": 0.0}, {"isl": 9, "at_s": 2.0}]
    load = load_of(rows)
    stream = load["segments"][0]["streams"][0]
    sent = requests_of((1, 1, 2, 8, 0), (2, 3, 4, 7, 0), (3, 3, 4, 9, 0), (9, 3, 4, 9, 0))
    assert [(r.input_planned, row["isl"]) for r, row in matched(stream, sent)] == [
        (8, 8), (7, 7), (9, 9),
    ]  # fmt: skip
    (check,) = check_schedule(load, sent, LIMITS)
    assert (check.name, check.value) == ("schedule_lag_p99_ms", 1.0)
    stream["concurrency"] = 2
    assert check_schedule(load, sent, LIMITS) == []
    rows[2]["think_s"] = 0.5
    late = requests_of((1, 1, 2, 7, 0), (2, 1, 2, 8, 0), (3, 600, 601, 9, 0))
    assert [(r.id, pause) for r, pause in paused(load, late)] == [("main-000003", 0.5)]
    assert check_schedule(load, late, LIMITS)[0].value == 1.0


OFFICIAL = [
    # The form of the seeds' load: conversations whose prompts grow, the last ones capped.
    {"isl": min(isl, 400), "osl": 4, "conversation": name, **pause}
    for turn, isl in enumerate((160, 320, 480))
    for name in ("a", "b", "c")
    for pause in ({"think_s": 0.05} if turn else {},)
]


def replay(tmp_path: Path, cached: Any, **stream: Any) -> tuple[Load, dict[str, Any]]:
    whole = {"name": "main", "kind": "replay", "requests": OFFICIAL, **stream}
    segments = [{"name": "main", "streams": [whole]}]
    got = measure(tmp_path, {"answer": {"cached_tokens": cached}}, segments=segments)
    return got, {"segments": segments}


def test_cumulative_prefixes_are_found_again(tmp_path: Path) -> None:
    """Against a server that keeps every prompt: what is reached is what the trace says."""
    got, load = replay(tmp_path, "prefix", concurrency=2)
    assert [row.status for row in got.rows] == ["ok"] * 9
    (check,) = check_reuse(load, got.rows, None, LIMITS)
    assert check.ok is True, check
    figures = replay_figures(load, got.rows)
    assert figures is not None
    # 160 + 320 of each conversation's 160 + 320 + 400 tokens.
    assert figures["reusable_share_most"] == pytest.approx(480 / 880)
    assert (
        figures["reusable_share_least"] == figures["cached_share"] == figures["reusable_share_most"]
    )
    assert (figures["requests"], figures["conversations"], figures["pauses"]) == (9, 3, 6)
    assert figures["pause_s"]["max"] == pytest.approx(0.05)
    assert figures["pause_lag_s"]["n"] == 6
    (lag,) = check_schedule(load, got.rows, LIMITS)
    assert lag.name == "schedule_lag_p99_ms"
    assert lag.value == pytest.approx(figures["pause_lag_s"]["p99"] * 1e3)
    json.dumps(figures, allow_nan=False)


def test_a_server_without_a_cache_misses_it(tmp_path: Path) -> None:
    got, load = replay(tmp_path, 0, concurrency=2)
    (check,) = check_reuse(load, got.rows, None, LIMITS)
    assert check.ok is False
    assert check.value == pytest.approx(480 / 880)
