from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.traces.collectives import Matched, collective_name
from servemap.analysis.traces.questions import answers
from servemap.analysis.traces.ranks import across_ranks, chance_of, clock_offsets
from servemap.model.errors import ParseError
from tests.parts import need
from tests.tracebuilder import analysis_of, event, kernel, launch, write

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank(arrivals: list[float], ends: list[float], name: str = NCCL) -> list[dict[str, Any]]:
    return [kernel(name, at, end - at) for at, end in zip(arrivals, ends, strict=True)]


def test_the_late_rank_and_who_waits_by_hand(tmp_path: Path) -> None:
    # Twelve all-reduces end at 100, 200, ...; rank 1 arrives 30 us after rank 0, but for the last,
    # at which rank 0 comes 10 us after it. The clock of rank 1 is 1000 us ahead.
    ends = [100.0 * at for at in range(1, 13)]
    early = [end - 50 for end in ends]
    late = [end - 20 for end in ends]
    late[-1] = early[-1] - 10
    other = [(at + 1000, end + 1000) for at, end in zip(late, ends, strict=True)]
    zero = write(tmp_path / "0.json", rank(early, ends), rank=0)
    one = write(tmp_path / "1.json", rank(*map(list, zip(*other, strict=True))), rank=1)
    found = analysis_of([one, zero]).across
    assert found is not None
    assert (found.matched, found.unmatched, found.below_error) == (12, 0, 0)
    assert [item.rank for item in found.ranks] == [0, 1]
    assert [item.offset_ns for item in found.ranks] == [0, 1_000_000]
    assert [item.error_ns for item in found.ranks] == [0, 0]
    assert [item.late for item in found.ranks] == [1, 11]
    assert [item.waiting_ns for item in found.ranks] == [11 * 30_000, 10_000]
    assert found.ranks[1].late_mean_ns == pytest.approx(30_000)
    assert (found.skew_max_ns, found.skew_p50_ns) == (30_000, 30_000)
    [phase] = found.phases
    assert (phase.phase, phase.collectives, phase.waiting_ns) == ("outside steps", 12, 340_000)
    assert found.latest_rank == 1
    assert found.straggler.startswith("random: rank 1 is last at 11 of 12 collectives, ")


def test_collectives_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    def made(number: int, late: float) -> Path:
        events = [
            event("user_annotation", "step[EXTEND bs=1 toks=9]", 0, 10),
            event("user_annotation", "step[DECODE bs=1]", 10, 10),
            launch(5, 1, 1), launch(15, 1, 2), launch(17, 1, 3),
            # All run after both steps have ended on the host.
            kernel(NCCL, 30 + late, 10 - late, correlation=1),
            kernel(NCCL, 50, 10, correlation=2),
            kernel(NCCL, 70 + late, 10 - late, correlation=3),
        ]  # fmt: skip
        return write(tmp_path / f"{number}.json", events, rank=number)

    found = analysis_of([made(0, 0), made(1, 4)]).across
    assert found is not None
    assert [(one.phase, one.collectives, one.waiting_ns) for one in found.phases] == [
        ("prefill", 1, 4_000),
        ("decode", 2, 4_000),
    ]


def test_a_rank_that_is_always_late_is_fixed() -> None:
    ends = np.arange(40)[None, :] * 1000 + np.zeros((4, 1), np.int64)
    start = ends - 500
    start[2] += 300
    found = across_ranks(
        [0, 1, 2, 3], Matched(["a"] * 40, start, ends, 0, ["decode"] * len(ends[0]))
    )
    assert found is not None
    assert found.straggler == "fixed: rank 2 is last at 40 of 40 collectives"
    assert [item.waiting_ns for item in found.ranks] == [12_000, 12_000, 0, 12_000]


def test_skew_below_the_error_of_the_clocks_names_nobody() -> None:
    generator = np.random.default_rng(3)
    ends = np.arange(100)[None, :] * 1_000_000 + generator.integers(-9000, 9000, (2, 100))
    start = np.arange(100)[None, :] * 1_000_000 - 50_000 + np.array([[0], [500]])
    found = across_ranks([0, 1], Matched(["a"] * 100, start, ends, 0, ["decode"] * len(ends[0])))
    assert found is not None
    assert found.below_error > 90
    assert found.straggler.startswith("cannot be told")
    assert sum(item.late for item in found.ranks) == 100 - found.below_error


@given(st.integers(1, 60), st.integers(2, 16))
def test_chance_is_one_for_none_and_falls(collectives: int, ranks: int) -> None:
    chances = [chance_of(late, collectives, ranks) for late in range(collectives + 1)]
    assert chances[0] == 1
    assert all(one >= other for one, other in pairwise(chances))
    assert chances[-1] == pytest.approx(min(1, ranks * ranks**-collectives))


@given(st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=6), st.integers(1, 20))
def test_offsets_are_found_exactly_where_ends_agree(offsets: list[int], count: int) -> None:
    ends = np.arange(count)[None, :] * 777 + np.array(offsets)[:, None]
    found, error = clock_offsets(Matched(["a"] * count, ends, ends, 0, ["decode"] * count))
    assert found.tolist() == [one - offsets[0] for one in offsets]
    assert not error.any()


def test_counts_that_differ_are_not_matched(tmp_path: Path) -> None:
    zero = write(tmp_path / "0.json", rank([1, 20], [9, 30]), rank=0)
    one = write(tmp_path / "1.json", rank([1], [9]), rank=1)
    found = analysis_of([zero, one])
    assert found.across is None and found.across_missing == "the ranks share no collective"


@pytest.mark.parametrize(
    "name",
    [
        NCCL,
        "ncclDevKernel_AllReduce_Sum_f32_TREE_LL128(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllReduce_Sum_f32",
    ],
)
def test_algorithm_and_arguments_are_no_part_of_a_name(name: str) -> None:
    assert collective_name(name) == "ncclDevKernel_AllReduce_Sum_f32"


def test_other_names_stay_apart() -> None:
    names = [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)",
        "_C::shm_allreduce",
        "_C::shm_all_gather",
    ]
    assert [collective_name(name) for name in names] == [
        "cross_device_reduce_1stage", "multimem_all_reduce_kernel", "_C::shm_allreduce",
        "_C::shm_all_gather",
    ]  # fmt: skip


def test_files_of_two_captures_are_refused(tmp_path: Path) -> None:
    def made(name: str, at: float, **more: Any) -> Path:
        return write(tmp_path / name, [event("cpu_op", "a", at, 5)], **more)

    zero = made("0.json", 1e9, rank=0)
    with pytest.raises(ParseError, match="both are rank 0"):
        analysis_of([zero, made("a.json", 1e9, rank=0)])
    with pytest.raises(ParseError, match="of 2 ranks, the other of 4"):
        analysis_of([zero, made("b.json", 1e9, rank=1, world=4)])
    with pytest.raises(ParseError, match=r"100\.0 s apart"):
        analysis_of([zero, made("c.json", 1.1e9, rank=1)])
    assert analysis_of([zero, made("d.json", 1e9 + 9e6, rank=1)])
    # The same moment on another base of time.
    assert analysis_of([zero, made("e.json", 5e8, rank=1, baseTimeNanoseconds=500_000_000_000)])


def test_recorded_ranks_of_vllm_on_cpu() -> None:
    corpus = Path(need("corpus")) / "own"
    paths = [corpus / f"vllm_tp2_rank{number}.pt.trace.json.gz" for number in (0, 1)]
    found = analysis_of(paths)
    for file in found.files:
        assert file.host is not None
        calls = {one.name: one.calls for one in file.host.operators}
        assert calls["_C::shm_allreduce"] == 36
        assert [step.phase for step in file.host_steps] == [
            "prefill", "decode", "decode", "decode", "idle",
        ]  # fmt: skip
    across = found.across
    assert across is not None
    assert (across.matched, across.unmatched) == (40, 0)
    assert {one.phase: one.collectives for one in across.phases} == {"prefill": 10, "decode": 30}
    assert sum(one.waiting_ns for one in across.phases) == sum(
        one.waiting_ns for one in across.ranks
    )
    assert abs(across.ranks[1].offset_ns) < 10_000  # one machine, one clock
    assert "5 steps end" in answers(found)[5].answer


def test_several_processes_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        write(tmp_path / f"{number}.json", rank([1, 20], [9, 30]), rank=number) for number in (0, 1)
    ]
    alone = analysis_of(paths)
    monkeypatch.setattr("servemap.analysis.traces.analyse._MANY_BYTES", 0)
    assert analysis_of(paths) == alone
    paths[1].write_text("")
    with pytest.raises(ParseError, match="the file is empty"):
        analysis_of(paths)
