"""Which point of a calibration stands for a case, and how large its error is against it."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import build_repeat, request

from servemap.analysis.calibration import client_error, in_flight, overlapping, peak_in_flight
from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import read_repeat

INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30)


def row(count: int, status: str = "ok", ttft: float = 1.0, gap: float | None = 0.5) -> Any:
    spread = None if gap is None else {"p50": gap / 2, "p99": gap}
    return {
        "concurrency": count,
        "status": status,
        "reason": None if status == "ok" else f"{status} at {count}",
        "ttft_error_ms": {"p50": ttft / 2, "p99": ttft},
        "gap_error_ms": spread,
    }


RECORD = {"rows": [row(64, ttft=3.0), row(1), row(16, "server late"), row(4, gap=None)]}


@pytest.mark.parametrize(("count", "at"), [(1, 1), (2, 4), (4, 4), (5, 64), (16, 64), (64, 64)])
def test_the_nearest_usable_point_at_or_above(count: int, at: int) -> None:
    error = client_error(RECORD, count, 100.0, 10.0)
    assert error.point is not None
    assert error.point["concurrency"] == at


def test_a_larger_load_than_was_calibrated_has_no_point() -> None:
    error = client_error(RECORD, 65, 100.0, 10.0)
    assert (error.point, error.ttft_share, error.large) == (None, None, False)
    assert error.why == "no point at or above this number in flight"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({}, "no calibration was made"),
        ({"rows": [row(9, "failed"), row(1, "server late")]}, "c=1: server late at 1"),
        ({"rows": [], "reasons": ["no route"]}, "no route"),
        ({"rows": "damaged"}, "nothing was measured"),
    ],
)
def test_what_is_missing_says_why(record: dict[str, Any], why: str) -> None:
    assert client_error(record, 1, 10.0, 10.0)[1:] == (None, None, None, why)


def test_shares_by_hand() -> None:
    error = client_error(RECORD, 64, 20.0, 10.0)
    assert (error.ttft_share, error.itl_share) == (0.15, 0.05)
    assert error.large
    assert not client_error(RECORD, 64, 30.0, 5.0).large, "a tenth is not above a tenth"
    one_token = client_error(RECORD, 1, 20.0, None)
    assert (one_token.ttft_share, one_token.itl_share) == (0.05, None)
    assert client_error(RECORD, 4, 20.0, 1.0).itl_share is None
    at_once = client_error(RECORD, 1, 20.0, 0.0)
    assert (at_once.itl_share, at_once.large) == (math.inf, True)
    assert client_error(RECORD, None, 20.0, 1.0).why == "the number in flight is not known"


@given(INTERVALS)
def test_the_peak_is_that_of_a_count_moment_by_moment(intervals: list[tuple[int, int]]) -> None:
    starts = [start for start, _ in intervals]
    ends = [start + length for start, length in intervals]
    spans = list(zip(starts, ends, strict=True))
    counts = [sum(start <= t < end for start, end in spans) for t in range(80)]
    assert overlapping(starts, ends) == max(counts)


def test_a_request_that_ends_as_the_next_begins_is_one_in_flight() -> None:
    assert overlapping([0, 5], [5, 9]) == 1
    assert overlapping([0, 4], [5, 9]) == 2
    assert overlapping([3], [3]) == 0


def test_no_table_no_peak(tmp_path: Path) -> None:
    assert peak_in_flight(tmp_path / "requests.parquet") is None
    (tmp_path / "requests.parquet").write_text("PAR1 and no more")
    assert peak_in_flight(tmp_path / "requests.parquet") is None


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"kind": "fixed", "isl": 64, "osl": 4, "concurrency": 9}, 9),
        ({"kind": "mixed", "background": {"isl": 64, "osl": 4, "concurrency": 9}}, 10),
        ({"kind": "rate", "isl": 64, "osl": 4, "rate_rps": 50.0, "concurrency": None}, 3),
    ],
)
def test_an_open_loop_has_its_measured_peak(
    tmp_path: Path, spec: dict[str, Any], count: int
) -> None:
    # Each is answered for 80 ms; the fourth comes when the first has ended.
    requests = [request(k, sent_ms=sent) for k, sent in enumerate((0.0, 30.0, 60.0, 80.0))]
    folder = build_repeat(tmp_path, case="c", requests=requests, case_spec=spec)
    derive_attempt(folder, {})
    repeat = read_repeat(tmp_path, {"variant": "baseline", "case": "c", "repeat": 1})
    assert in_flight([repeat._replace(verdict="valid")]) == count
    assert in_flight([repeat._replace(meta={})]) is None
