"""Kernels over their launches, by Nsight Compute (simulated)."""

from pathlib import Path

from servemap.analysis.kernels import kernels
from servemap.parsers.kinds import parse

MADE = Path(__file__).parents[1] / "parsers" / "made"


def launch(kernel: str, duration: float | None, block: str = "(1, 1, 1)", **stalls: float) -> dict:
    figures = {"duration_ns": duration, "l2_hit_percent": None}
    return {"kernel": kernel, "block": block, "grid": "g", "figures": figures, "stalls": stalls}


def test_mean_least_and_largest_of_a_made_up_table() -> None:
    (row,) = kernels(parse("ncu", (MADE / "ncu.2.csv").read_bytes()).data["launches"])
    assert (row["kernel"], row["launches"], row["blocks"]) == ("made", 2, ["(128, 1, 1)"])
    assert row["figures"]["duration_ns"] == {
        "mean": 13500, "min": 12250, "max": 14750, "launches": 2,
    }  # fmt: skip
    # One launch has n/a: it counts for nothing, not for 0.
    assert row["figures"]["tensor_percent"] == {"mean": 0, "min": 0, "max": 0, "launches": 1}
    assert row["figures"]["dram_percent"] is None
    assert row["stalls"]["barrier"]["mean"] == 1.0


def test_the_kernel_of_the_longest_time_comes_first() -> None:
    rows = kernels([launch("a", 5), launch("c", None), launch("b", 3), launch("b", 3)])
    assert [row["kernel"] for row in rows] == ["b", "a", "c"]


def test_sizes_that_differ_are_all_named_and_the_longest_wait_comes_first() -> None:
    rows = kernels([launch("a", 1, "x", wait=1.0, barrier=4.0), launch("a", 1, "y", wait=2.0)])
    assert rows[0]["blocks"] == ["x", "y"]
    assert list(rows[0]["stalls"]) == ["barrier", "wait"]
    assert rows[0]["stalls"]["barrier"]["launches"] == 1
