"""Clocks of nodes against ours: arithmetic with known truths, and the on-node clock itself."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import NodeError
from servemap.nodes.base import Exchange
from servemap.nodes.clock import ClockOffset, between, clock_offset, measure_clock
from servemap.nodes.local import LocalNode
from servemap.nodes.ssh import SshNode
from servemap.onnode import clock
from tests.unit.nodes.sshd import Sshd

NS = st.integers(0, 10**9)


@given(
    offset=st.integers(-(10**15), 10**15),
    ways=st.lists(st.tuples(NS, NS, NS), min_size=1, max_size=20),
)
def test_the_truth_lies_within_the_error(offset: int, ways: list[tuple[int, int, int]]) -> None:
    now, exchanges = 10**18, []
    for there, back, pause in ways:
        exchanges.append(Exchange(now, str(now + there + offset), now + there + back))
        now += there + back + pause
    found = clock_offset(exchanges)
    assert abs(found.offset_ns - offset) <= found.error_ns
    # no other exchange contradicts the truth, so the offset is at most half a trip from any
    best = min(there + back for there, back, _ in ways)
    assert found.error_ns <= best + 3 + 15e-6 * (now - 10**18)


def test_the_shortest_round_trip_is_taken() -> None:
    slow = Exchange(1_000, "2000", 3_000)
    quick = Exchange(5_000, "5550", 5_100)
    assert clock_offset([slow, quick]) == ClockOffset(500, 51)


def test_a_clock_that_was_stepped_widens_the_error() -> None:
    before = [Exchange(10**9 * n, str(10**9 * n + 50), 10**9 * n + 100) for n in range(3)]
    after = [Exchange(10**10, str(10**10 + 5_000_050), 10**10 + 110)]
    assert clock_offset(before).error_ns < 50_000
    assert clock_offset([*before, *after]).error_ns > 4_900_000


def test_what_is_no_time_is_passed_over_or_said() -> None:
    good = Exchange(0, "100", 10)
    bad = [Exchange(0, "", 1), Exchange(0, "-5", 1), Exchange(5, "100", 0), Exchange(0, "²", 1)]
    assert clock_offset([*bad, good]) == clock_offset([good])
    with pytest.raises(NodeError, match="clock cannot be compared"):
        clock_offset(bad)


def test_two_nodes_are_compared_by_way_of_here() -> None:
    assert between(ClockOffset(100, 5), ClockOffset(-40, 7)) == ClockOffset(140, 12)


def test_this_machines_clock_is_ours() -> None:
    assert measure_clock(LocalNode()) == ClockOffset(0, 0)


def test_a_clock_over_ssh(node: SshNode) -> None:
    found = measure_clock(node)
    assert abs(found.offset_ns) <= found.error_ns
    assert found.error_ns < 10**9


def test_a_step_of_a_nodes_clock_is_seen(tmp_path: Path, sshd: Sshd) -> None:
    skew = tmp_path / "skew"
    server = Sshd(tmp_path / "sshd", f"SetEnv {clock.SKEW_FILE}={skew} HOME={tmp_path}")
    try:
        server.start()
        stepped = server.node()
        assert abs(measure_clock(stepped).offset_ns) < 10**9
        skew.write_text("-7000000000\n")
        found = measure_clock(stepped)
        assert abs(found.offset_ns + 7_000_000_000) <= found.error_ns
    finally:
        server.stop()


def test_epoch_ns_without_a_skew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", str(tmp_path / "no"), os.devnull):
        monkeypatch.setenv(clock.SKEW_FILE, value)
        before = time.time_ns()
        assert before <= clock.epoch_ns() <= time.time_ns()
