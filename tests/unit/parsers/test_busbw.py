"""busbw by our factors against nccl-tests' definitions (doc/PERFORMANCE.md) and recordings."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.communication.busbw import busbw_factor
from servemap.parsers.kinds import parse
from tests.corpus import read_sample

PRINTED = 0.005e9 * 1.001
"""Rates are printed with two decimals of GB/s."""


def transfers_per_rank(operation: str, ranks: int) -> Fraction:
    """Sends of a ring in shares of the message, a link: counted step by step.

    A ring all_reduce is a reduce_scatter and an all_gather; each takes n - 1 steps in which every
    rank sends one n-th. In an all_to_all a rank sends one n-th to each of the others.
    """
    part = Fraction(1, ranks)
    once = sum((part for _ in range(ranks - 1)), Fraction(0))
    return 2 * once if operation == "all_reduce" else once


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    st.integers(2, 5000),
)
def test_the_factor_is_what_a_ring_sends_over_each_link(operation: str, ranks: int) -> None:
    assert busbw_factor(operation, ranks) == pytest.approx(
        float(transfers_per_rank(operation, ranks)), rel=1e-12
    )


def test_nobody_to_talk_to_and_an_unknown_operation_are_errors() -> None:
    with pytest.raises(ValueError, match="1 ranks"):
        busbw_factor("all_reduce", 1)
    with pytest.raises(KeyError):
        busbw_factor("sendrecv", 2)


def halves(file: str) -> list[tuple[int, dict[str, Any]]]:
    run = parse("nccl-tests", read_sample(file)).data["runs"][0]
    return [
        (row["size_bytes"], row[half])
        for row in run["rows"]
        for half in ("out_of_place", "in_place")
        if row[half] and row[half]["time_s"] and row["size_bytes"]
    ]


@pytest.mark.parametrize(
    ("file", "operation", "ranks"),
    [
        ("001_sb_allreduce_8xA100_old_NA_inlinelog.log", "all_reduce", 8),
        ("002_sb_alltoall_8xA100_no_redop.log", "all_to_all", 8),
        ("004_sb_reducescatter_old.log", "reduce_scatter", 8),
        ("007_dgxc_allreduce_h100_mpi_new.txt", "all_reduce", 8),
        ("009_cw_allreduce_gb200_nvl72_rank71.txt", "all_reduce", 72),
        ("016_interleaved_info_2xA100_pcie.log", "all_reduce", 2),
        ("017_interleaved_info_2xA100_fault_topo.log", "all_reduce", 2),
        ("019_efa_16gpu_2node_prefixed_full.log", "all_reduce", 16),
    ],
)
def test_recorded_rows_agree_within_what_is_printed(file: str, operation: str, ranks: int) -> None:
    factor = busbw_factor(operation, ranks)
    found = halves(f"nccl_tests/{file}")
    assert len(found) >= 8
    for size, half in found:
        algbw, busbw, time_s = (
            half[key] for key in ("algbw_bytes_per_s", "busbw_bytes_per_s", "time_s")
        )
        assert abs(busbw - algbw * factor) <= PRINTED * (1 + factor), (size, half)
        # Times are printed with four significant digits, or whole microseconds of long ones.
        digits = 0.5e-6 if time_s >= 1e-2 else time_s * 0.6e-3
        assert abs(algbw - size / time_s) <= PRINTED + size / time_s * digits / time_s, (size, half)
