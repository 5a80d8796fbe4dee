"""A trace by hand: every figure below can be worked out on paper from EVENTS (us)."""

from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.traces.analyse import Analysis, DeviceReport
from servemap.analysis.traces.questions import answers
from tests.parts import need
from tests.tracebuilder import analysis_of, event, kernel, launch, write

GEMM, ATTENTION, NCCL = "nvjet_tst_64x64", "fmhaSm100aKernel_x", "ncclDevKernel_AllReduce_Sum_f32"

#  stream 7: gemm [10,20)  attention [18,26)        gemm [40,50)      strange [60,61)
#  stream 9:            all-reduce [20,34)                   [48,55) copy [55,58)
#  busy: [10,34) [40,58) [60,61) = 43 of the span [10,61) = 51; idle: 6 + 2 = 8
EVENTS: list[dict[str, Any]] = [
    event("user_annotation", "execute_context_2(64)_generation_0(0)", 0, 30),
    event("user_annotation", "execute_context_0(0)_generation_4(4)", 31, 25),
    launch(1, 2, 1),
    launch(4, 2, 2),
    launch(7, 2, 3),
    # The launch of the gemm at 40 begins at 38 and ends at 39: of the gap [34,40) the host is late
    # for 5: a synchronising call takes 1, an operator 2, Python 1, the launch 1; then 1 is queued.
    event("python_function", "model.py(3): forward", 30, 26),
    event("cpu_op", "aten::linear", 35, 6),
    launch(35, 1, 90, name="cudaStreamSynchronize"),
    launch(38, 1, 4),
    launch(41, 1, 5, name="cudaGraphLaunch"),
    launch(43, 2, 6),
    kernel(GEMM, 10, 10, correlation=1),
    kernel(ATTENTION, 18, 8, correlation=2),
    kernel(NCCL, 20, 14, correlation=3, stream=9, tid=9),
    kernel(GEMM, 40, 10, correlation=4),
    kernel(NCCL, 48, 7, correlation=5, stream=9, tid=9),
    {**kernel("Memcpy DtoH", 55, 3, correlation=6, stream=9, bytes=640), "cat": "gpu_memcpy"},
    kernel("strange", 60, 1),
]


@pytest.fixture
def by_hand(tmp_path: Path) -> Analysis:
    return analysis_of([write(tmp_path / "t.json", EVENTS)])


def only(analysis: Analysis) -> DeviceReport:
    return analysis.files[0].devices[0]


def test_busy_idle_and_what_hides_communication(by_hand: Analysis) -> None:
    one = only(by_hand).figures
    assert (one.span_ns, one.busy_ns, one.idle_ns) == (51_000, 43_000, 8_000)
    assert one.compute_ns == 16_000 + 10_000 + 1_000
    # 14 + 7 of communication; attention hides [20,26), the gemm [48,50).
    talk = one.communication
    assert (talk.total_ns, talk.hidden_ns, talk.exposed_ns) == (21_000, 8_000, 13_000)
    assert one.copies_ns == 3_000


def test_exposed_time_by_class_sums_up_to_busy(by_hand: Analysis) -> None:
    one = only(by_hand).figures
    exposed = {item.id: item.exposed_ns for item in one.classes}
    assert exposed == {
        "gemm": 20_000,
        "attention": 6_000,  # [18,20) belongs to the gemm that began first
        "communication": 13_000,
        "copies": 3_000,
        "unmatched": 1_000,
    }
    assert sum(exposed.values()) == one.busy_ns
    assert one.unmatched_share == pytest.approx(1 / 43)
    total = {item.id: item.total_ns for item in one.classes}
    assert (total["attention"], total["communication"]) == (8_000, 21_000)


def test_kernels_launches_graphs_and_copies(by_hand: Analysis) -> None:
    one = only(by_hand).figures
    top = one.kernels[0]
    assert (top.name, top.runs, top.sum_ns, top.exposed_ns) == (GEMM, 2, 20_000, 20_000)
    nccl = next(item for item in one.kernels if item.name == NCCL)
    assert (nccl.runs, nccl.sum_ns, nccl.min_ns, nccl.max_ns) == (2, 21_000, 7_000, 14_000)
    assert one.launches.kernels == 6
    assert one.launches.kernels_by_graph == 1
    assert one.launches.launches_traced == 5
    assert one.launches.graph_time_share == pytest.approx(7 / 50)
    assert one.launches.mean_kernel_ns == pytest.approx(50_000 / 6)
    assert [(item.name, item.copies, item.bytes, item.sum_ns) for item in one.copies] == [
        ("Memcpy DtoH", 1, 640, 3_000)
    ]


def test_exposed_time_by_the_operator_that_launched_it(by_hand: Analysis) -> None:
    found = {one.name: (one.pieces, one.exposed_ns) for one in only(by_hand).figures.operators}
    assert found == {
        "(cudaLaunchKernel)": (4, 10_000 + 6_000 + 8_000 + 3_000),
        "aten::linear": (1, 10_000),  # the gemm at 40, launched at 38
        "(cudaGraphLaunch)": (1, 5_000),
        "(launch not traced)": (1, 1_000),
    }


def test_the_innermost_operator_counts_past_others_that_ended(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "outer", 0, 100),
        event("cpu_op", "middle", 0, 80),
        *(event("cpu_op", "ended", at, 1) for at in range(1, 50)),
        event("cpu_op", "another thread", 55, 20, tid=9),
        launch(60, 2, 1), kernel(GEMM, 70, 5, correlation=1),
        launch(90, 2, 2), kernel(GEMM, 95, 5, correlation=2),
        launch(101, 2, 3), kernel(GEMM, 105, 5, correlation=3),
    ]  # fmt: skip
    found = only(analysis_of([write(tmp_path / "t.json", events)])).figures.operators
    assert {one.name: one.exposed_ns for one in found} == {
        "middle": 5_000, "outer": 5_000, "(cudaLaunchKernel)": 5_000,
    }  # fmt: skip


def test_idle_gaps_and_what_the_host_did(by_hand: Analysis) -> None:
    gaps = only(by_hand).figures.gaps
    assert (gaps.gaps, gaps.total_ns) == (2, 8_000)
    assert gaps.causes == {
        "operators": 2_000,
        "launch_not_traced": 2_000,
        "launching": 1_000,
        "queued": 1_000,
        "python": 1_000,
        "synchronising": 1_000,
    }
    longest = gaps.longest[0]
    assert (longest.start_ns, longest.length_ns) == (34_000, 6_000)
    assert longest.host == ["aten::linear", "execute_context_0(0)_generation_4(4)",
                            "model.py(3): forward"]  # fmt: skip
    assert (longest.before, longest.after) == (NCCL, GEMM)


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("python_function", "vllm/shm_broadcast.py(500): acquire_read", "waiting_for_rank"),
        (
            "python_function",
            "torch/distributed/distributed_c10d.py(4): barrier",
            "waiting_for_rank",
        ),
        ("cpu_op", "gloo:broadcast", "waiting_for_rank"),
        ("python_function", "torch/distributed/distributed_c10d.py(9): pg_map", "python"),
        ("python_function", "sglang/managers/scheduler.py(5): recv_requests", "scheduler"),
        ("cuda_runtime", "cudaStreamSynchronize", "synchronising"),
        ("cuda_runtime", "cudaLaunchKernel", "launching"),
        ("cpu_op", "aten::mm", "operators"),
        ("user_annotation", "anything", "annotated"),
    ],
)
def test_what_the_host_did_in_a_gap(kind: str, name: str, cause: str, tmp_path: Path) -> None:
    events = [
        kernel(GEMM, 0, 10), event(kind, name, 10, 20), launch(30, 0, 1),
        kernel(GEMM, 31, 5, correlation=1),
    ]  # fmt: skip
    causes = only(analysis_of([write(tmp_path / "t.json", events)])).figures.gaps.causes
    assert causes == {cause: 20_000, "queued": 1_000}


def test_the_last_step_and_untraced_launches_are_kept_and_flagged(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 10), launch(1, 1, 1),
        event("user_annotation", "ProfilerStep#2", 10, 10), launch(11, 1, 2),
        kernel(GEMM, 2, 4, correlation=1),
        kernel(GEMM, 12, 5, correlation=2),
        kernel(GEMM, 18, 7, correlation=99),
    ]  # fmt: skip
    report = only(analysis_of([write(tmp_path / "t.json", events)]))
    assert (report.figures.span_ns, report.figures.busy_ns) == (23_000, 16_000)
    assert [(one.name, one.device_busy_ns) for one in report.steps] == [
        ("ProfilerStep#1", 4_000),
        ("ProfilerStep#2", 12_000),
    ]
    assert (report.by_time, report.figures.launches.launches_traced) == (1, 2)
    assert report.figures.gaps.causes["launch_not_traced"] == 1_000


def test_steps_and_phases(by_hand: Analysis) -> None:
    report = only(by_hand)
    assert by_hand.files[0].steps_named_by == "vllm"
    assert [step.phase for step in report.steps] == ["prefill", "decode"]
    first, second = report.steps
    assert (first.prefill_requests, first.decode_requests) == (2, 0)
    assert (first.kernels, first.device_span_ns, first.device_busy_ns) == (3, 24_000, 24_000)
    assert (first.wait_ns, first.communication_exposed_ns) == (10_000, 8_000)
    # The strange kernel has no launch: it began after the second step did.
    assert (second.kernels, second.device_span_ns, second.device_busy_ns) == (3, 21_000, 19_000)
    assert (first.by_graph, second.by_graph) == (0, 1)
    assert second.classes == {
        "gemm": 10_000, "communication": 5_000, "copies": 3_000, "unmatched": 1_000,
    }  # fmt: skip
    assert report.by_time == 1
    decode = report.phases[1]
    assert (decode.communication_ns, decode.communication_hidden_ns) == (7_000, 2_000)
    assert sum(item.exposed_ns for item in decode.classes) == decode.busy_ns == 19_000
    assert {item.name: item.exposed_ns for item in decode.operators} == {
        "aten::linear": 10_000,
        "(cudaGraphLaunch)": 5_000,
        "(cudaLaunchKernel)": 3_000,
        "(launch not traced)": 1_000,
    }
    assert report.outside_steps_ns == 0


def test_work_that_no_step_launched_is_outside(tmp_path: Path) -> None:
    events = [*EVENTS, launch(70, 1, 20), kernel(GEMM, 75, 5, correlation=20)]
    report = only(analysis_of([write(tmp_path / "t.json", events)]))
    assert report.outside_steps_ns == 5_000
    assert [step.kernels for step in report.steps] == [3, 3]


def test_kernels_that_overlap_on_one_stream_are_not_added(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 10), kernel(GEMM, 5, 10), kernel(GEMM, 6, 2)]
    one = only(analysis_of([write(tmp_path / "t.json", events)])).figures
    assert one.busy_ns == one.compute_ns == 15_000
    assert one.kernels[0].sum_ns == 22_000
    assert one.kernels[0].exposed_ns == 15_000


def test_two_devices_of_one_file_have_figures_of_their_own(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 10), kernel(GEMM, 5, 10, device=1)]
    found = analysis_of([write(tmp_path / "t.json", events)]).files[0].devices
    assert [(one.figures.device, one.figures.busy_ns) for one in found] == [
        (0, 10_000),
        (1, 10_000),
    ]


def test_a_launch_number_that_comes_again_means_the_last_call(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "step[EXTEND bs=1 toks=5]", 0, 10),
        event("user_annotation", "step[DECODE bs=1]", 100, 10),
        launch(1, 1, 5), launch(101, 1, 5),
        kernel(GEMM, 20, 5, correlation=5), kernel(GEMM, 120, 5, correlation=5),
    ]  # fmt: skip
    report = only(analysis_of([write(tmp_path / "t.json", events)]))
    assert [(step.phase, step.kernels) for step in report.steps] == [("prefill", 1), ("decode", 1)]


def test_the_ten_questions_have_an_answer_or_a_reason(by_hand: Analysis) -> None:
    said = answers(by_hand)
    assert len(said) == 10
    by_name = {one.question: one for one in said}
    assert "13" in by_name["exposed time of communication"].answer.replace("0.013 ms", "13")
    assert "0.008 ms of 0.021 ms" in by_name["communication hidden behind compute"].answer
    assert "2 gaps, 0.008 ms" in by_name["holes left by the host or by synchronising"].answer
    assert GEMM in by_name["top kernels of prefill and of decode"].answer
    graphs = by_name["do graphs cover the decode batches"].answer
    assert "1 decode step of 4 requests, 33.3 % of kernels by graph" in graphs
    slow = by_name["is there a fixed slow rank"]
    assert not slow.answered and slow.answer.startswith("not answerable from this capture because")


def test_answers_name_the_events_behind_them(by_hand: Analysis) -> None:
    behind = {one.question: one.behind for one in answers(by_hand)}
    first = behind["exposed time of communication"]
    assert [(one.where, one.name, one.events, one.length_ns, one.start_ns) for one in first] == [
        ("rank 0", NCCL, 2, 21_000, 20_000)
    ]
    assert behind["why a long prefill delays decoding"] == []
    [gap, other] = behind["holes left by the host or by synchronising"]
    assert (gap.name, gap.length_ns, gap.start_ns) == (
        f"idle from {NCCL[:22]} to {GEMM}",
        6_000,
        34_000,
    )
    assert other.length_ns == 2_000
    for one in answers(by_hand):
        assert one.answered or not one.behind


def test_the_steps_that_a_prefill_delayed_and_by_what(tmp_path: Path) -> None:
    def step(name: str, at: float, gemm: float, attention: float) -> list[dict[str, Any]]:
        number = int(at) + 1
        return [
            event("user_annotation", name, at, 5),
            launch(at, 1, number), kernel(GEMM, at + 10, gemm, correlation=number),
            launch(at + 1, 1, number + 1),
            kernel(ATTENTION, at + 10 + gemm, attention, correlation=number + 1),
        ]  # fmt: skip

    decode, mixed = "execute_context_0(0)_generation_2(2)", "execute_context_1(99)_generation_2(2)"
    alone = "execute_context_1(99)_generation_0(0)"
    steps = [
        *step(decode, 0, 10, 10), *step(decode, 100, 10, 12), *step(mixed, 200, 30, 50),
        *step(decode, 300, 10, 10), *step(alone, 400, 40, 30), *step(decode, 500, 10, 10),
    ]  # fmt: skip
    said = answers(analysis_of([write(tmp_path / "t.json", steps)]))[9]
    assert said.answered
    assert "a decode step takes 0.02 ms (median)" in said.answer
    assert f"1 steps with prefill in them take up to 0.08 ms ({mixed})" in said.answer
    assert "most of it more on attention 0.04 ms, gemm 0.02 ms" in said.answer
    assert "1 times decoding waited for prefill steps, up to 0.07 ms" in said.answer
    assert [(one.name, one.length_ns, one.start_ns) for one in said.behind] == [
        (mixed, 80_000, 210_000),
        (alone, 70_000, 410_000),
    ]


# The values of INDEX.tsv: us, exact where the file has whole us.
def test_recorded_sampled_rank0() -> None:
    path = Path(need("corpus")) / "kineto_full/sampled_rank0.json.gz"
    one = only(analysis_of([path])).figures
    assert one.span_ns == 1_222_847_000
    assert one.idle_ns == 675_191_000
    assert one.compute_ns == 210_320_000
    assert one.communication.hidden_ns / one.communication.total_ns == pytest.approx(
        0.1495, abs=5e-5
    )
    assert sum(one.gaps.causes.values()) == one.idle_ns


def test_recorded_b200_kernels_overlap_and_communication_is_not_nccl() -> None:
    path = Path(need("corpus")) / "kineto_full/b200_rank0_of_8_eager.json.gz"
    report = only(analysis_of([path]))
    one = report.figures
    added = sum(item.sum_ns for item in one.copies)
    added += round((one.launches.mean_kernel_ns or 0) * one.launches.kernels)
    assert (round(added / 1000), one.busy_ns // 1000) == (11_666, 11_596)
    assert round(one.communication.total_ns / 1000) in (2_141, 2_142)
    assert one.unmatched_share < 0.01
    assert report.steps[0].phase == "prefill" and report.steps[0].prefill_requests == 1


def test_recorded_full_graph_is_idle_for_25_us() -> None:
    path = Path(need("corpus")) / "kineto_full/vllm_decode_full_graph.json.gz"
    one = only(analysis_of([path])).figures
    assert one.idle_ns == 25_473
    assert one.launches.kernels_by_graph == 421


def test_recorded_kernels_without_nccl_in_the_name_are_communication() -> None:
    path = Path(need("corpus")) / "kineto_traces/015_derived_new_nccl_kernel_names.json"
    one = only(analysis_of([path])).figures
    talk = next(item for item in one.classes if item.id == "communication")
    assert talk.events == 6
    assert sum("nccl" in item.name.lower() for item in one.kernels) == 4


@pytest.mark.parametrize("name", ["001_cpu_only_rank34.json", "004_cupti_profiler_no_kernels.json"])
def test_recorded_traces_without_kernels_have_no_busy_time(name: str) -> None:
    file = analysis_of([Path(need("corpus")) / "kineto_traces" / name]).files[0]
    assert file.devices == []
    assert file.host is not None and file.host.operators
