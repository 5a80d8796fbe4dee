"""Times of nodes on the head's clock: offsets, drift, and clocks that are set inside a case."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.jsonl import JsonLine
from servemap.telemetry.clock import (
    LEAST_STEP_NS,
    NodeClock,
    Reading,
    clock_record,
    epoch_of,
    load_times,
    node_clock,
    rebuilt,
    step_ns,
)

T0 = 1_800_000_000_000_000_000
S = 1_000_000_000
MS = 1_000_000


def record(start_ms: float, end_ms: float, step_ms: int = 0, error_ms: int = 1) -> dict[str, Any]:
    error = error_ms * MS
    start = Reading(int(start_ms * MS), error, T0)
    return clock_record(start, Reading(int(end_ms * MS), error, T0 + 10 * S), step_ms * MS, 0, "h")


def test_a_constant_offset() -> None:
    found = record(700, 700)
    assert (found["offset_ns"], found["drift_ns"], found["rate_ns"]) == (700 * MS, 0, 0)
    assert node_clock(found).to_head(T0 + 700 * MS) == T0


def test_a_drift_within_its_error_moves_nothing() -> None:
    found = record(700, 702)
    assert (found["drift_ns"], found["drift_error_ns"], found["rate_ns"]) == (2 * MS, 2 * MS, 0)
    assert node_clock(found).to_head(T0 + 5 * S) == T0 + 5 * S - 700 * MS


def test_clocks_of_different_rates_are_followed() -> None:
    """The node gains 100 ms in 10 s: what it calls 5 s + 50 ms after the start is 5 s after it."""
    clock = node_clock(record(0, 100))
    assert abs(clock.to_head(T0 + 5 * S + 50 * MS) - (T0 + 5 * S)) < MS
    assert clock.to_head(T0) == T0
    assert clock.to_head(T0 - S) == T0 - S, "no guess about the time before"
    assert clock.to_head(T0 + 11 * S) == T0 + 11 * S - 100 * MS


def test_a_step_is_no_rate() -> None:
    found = record(0, 5000, step_ms=5000)
    assert (found["drift_ns"], found["step_ns"], found["rate_ns"]) == (5000 * MS, 5000 * MS, 0)


def test_a_head_that_is_set_is_no_rate_of_the_others() -> None:
    start, end = Reading(0, MS, T0), Reading(-5 * S, MS, T0 + 10 * S)
    found = clock_record(start, end, 0, 5 * S, "h")
    assert (found["step_ns"], found["set_ns"], found["rate_ns"]) == (-5 * S, 0, 0)


def test_no_record_is_the_heads_clock() -> None:
    for nothing in (None, {}, {"offset_ns": "x"}, 7):
        assert node_clock(nothing) == NodeClock()
        assert node_clock(nothing).to_head(T0) == T0


@given(
    st.integers(-(10**12), 10**12), st.integers(-S, S), st.integers(1, 100),
    st.lists(st.integers(-(10**11), 10**11), min_size=2),
)  # fmt: skip
def test_order_is_kept(offset: int, rate: int, length_s: int, times: list[int]) -> None:
    clock = NodeClock(offset, 0, rate // 2, T0, T0 + length_s * S)
    moved = [clock.to_head(T0 + t) for t in sorted(times)]
    assert moved == sorted(moved)


@given(st.integers(-(10**10), 10**10), st.integers(0, 10 * S))
def test_a_rate_is_undone(offset: int, t: int) -> None:
    """A clock that is made to drift and is measured at both ends is put back to the nanosecond."""
    gained = 40 * MS
    shown = T0 + t + offset + gained * t // (10 * S)
    clock = NodeClock(offset, 0, gained, T0, T0 + 10 * S)
    # The share passed is read on the drifting clock itself, which is 0.4 % off at most.
    assert abs(clock.to_head(shown) - (T0 + t)) <= gained * 0.004 + 2


def line(number: int, **value: Any) -> JsonLine:
    return JsonLine(number, value)


def test_times_are_rebuilt_over_a_step(tmp_path: Path) -> None:
    (tmp_path / "collect.ready").write_text(json.dumps({"t_ns": T0, "mono_ns": 5 * S}))
    stepped = [
        line(1, t_ns=T0 + S, mono_ns=6 * S),
        line(2, t_ns=T0 + 2 * S + 3600 * S, mono_ns=7 * S, text="x"),
        line(3, t_ns=9),
        line(4, mono_ns=9),
    ]
    found = list(rebuilt(stepped, epoch_of(tmp_path)))
    assert [item.value.get("t_ns") for item in found] == [T0 + S, T0 + 2 * S, 9, None]
    assert found[1].value["text"] == "x"
    assert stepped[1].value["t_ns"] == T0 + 3602 * S, "what was read is left as it is"


def test_without_an_anchor_lines_stay(tmp_path: Path) -> None:
    lines = [line(1, t_ns=T0, mono_ns=5)]
    for text in (None, "{", "{}", '{"t_ns": 1}', '{"t_ns": "a", "mono_ns": 2}'):
        if text is not None:
            (tmp_path / "collect.ready").write_text(text)
        assert list(rebuilt(lines, epoch_of(tmp_path))) == lines


def test_the_step_that_collectors_saw(tmp_path: Path) -> None:
    assert step_ns(tmp_path) == 0
    for said, expected in ((3 * S, 3 * S), (-S, -S), (LEAST_STEP_NS - 1, 0), ("x", 0)):
        (tmp_path / "collectors.json").write_text(json.dumps({"clock": {"step_ns": said}}))
        assert step_ns(tmp_path) == expected


def test_the_load_clients_times(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry" / "w"
    folder.mkdir(parents=True)
    (folder / "collect.ready").write_text(json.dumps({"t_ns": T0, "mono_ns": 5 * S}))
    clock = {"w": record(700, 700)}

    def moved(wall_ns: int, mono_ns: int, node: str = "w") -> int:
        client = {"clock": {"wall_ns": wall_ns, "mono_ns": mono_ns}}
        return load_times(tmp_path, client, node, clock)(T0 + 2 * S)

    assert moved(T0 + S, 6 * S) == T0 + 2 * S - 700 * MS
    assert moved(T0 + S + 100, 6 * S) == T0 + 2 * S - 700 * MS, "how finely a clock is read"
    assert moved(T0 + S + 9 * S, 6 * S) == T0 - 7 * S - 700 * MS, "set after the collectors began"
    assert moved(T0 + S, 6 * S, "other") == T0 + 2 * S
    assert load_times(tmp_path, {}, "w", clock)(T0) == T0 - 700 * MS


@given(
    st.integers(-(10**9), 10**9),
    st.integers(-(10**8), 10**8),
    st.lists(st.integers(0, 40 * 3600), min_size=1, max_size=20),
)
def test_all_moments_at_once_are_as_each_alone(offset, rate, seconds):
    clock = NodeClock(offset, 0, rate, T0, T0 + 36 * 3600 * S)
    moments = [T0 + t * S - 3600 * S for t in seconds]
    moved = clock.all_to_head(np.array(moments, np.int64))
    assert moved.dtype == np.int64
    for one, other in zip(moved.tolist(), moments, strict=True):
        assert abs(one - clock.to_head(other)) <= 1
