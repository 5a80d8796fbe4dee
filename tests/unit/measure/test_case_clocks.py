"""Clocks of a case's nodes: measured against this machine, recorded against the head."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.clocks import Measured, clock_records, read_clock
from tests.fakes import FakeNode

S = 1_000_000_000
T0 = 1_800_000_000 * S
NOWHERE = Path("/nonexistent")


def measured(offset_ns: int, error_ns: int = 1000, at_ns: int = T0) -> Measured:
    return {"offset_ns": offset_ns, "error_ns": error_ns, "at_ns": at_ns}


def test_this_machine_has_no_offset_to_itself() -> None:
    found = read_clock(FakeNode())
    assert (found["offset_ns"], found["error_ns"]) == (0, 0)
    assert found["at_ns"] > T0 - 10**9 * S


def test_offsets_are_to_the_head_and_errors_add_up() -> None:
    start = {"h": measured(5 * S, 300), "w": measured(2 * S, 500)}
    end = {"h": measured(5 * S, 300, T0 + 9 * S), "w": measured(2 * S, 700, T0 + 9 * S)}
    records = clock_records(start, end, "h", NOWHERE)
    assert (records["h"]["offset_ns"], records["h"]["error_ns"]) == (0, 0)
    worker = records["w"]
    assert (worker["offset_ns"], worker["error_ns"]) == (-3 * S, 800)
    assert (worker["drift_ns"], worker["drift_error_ns"]) == (0, 1800)
    assert (worker["since_ns"], worker["until_ns"]) == (T0 + 5 * S, T0 + 14 * S), "head's clock"


def test_a_head_that_is_set_shows_as_a_step_and_not_as_a_rate(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h/collectors.json").write_text(json.dumps({"clock": {"step_ns": 4 * S}}))
    start = {"h": measured(0), "w": measured(0)}
    end = {"h": measured(4 * S), "w": measured(0)}
    records = clock_records(start, end, "h", tmp_path)
    assert (records["w"]["drift_ns"], records["w"]["step_ns"]) == (-4 * S, -4 * S)
    assert (records["w"]["rate_ns"], records["w"]["set_ns"]) == (0, 0)
    assert (records["h"]["drift_ns"], records["h"]["set_ns"]) == (0, 4 * S)


@given(st.integers(-(10**15), 10**15), st.integers(-S, S), st.integers(-S, S))
def test_what_the_controllers_own_clock_does_cancels_out(own: int, head: int, worker: int) -> None:
    """Set between the two measurements, it moves all offsets alike."""
    start = {"h": measured(head), "w": measured(worker)}
    end = {"h": measured(head + own), "w": measured(worker + own)}
    record = clock_records(start, end, "h", NOWHERE)["w"]
    assert (record["offset_ns"], record["drift_ns"]) == (worker - head, 0)
