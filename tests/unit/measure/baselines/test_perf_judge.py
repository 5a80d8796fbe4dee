"""What is no measurement of nccl-tests, on made-up output in its form and on recorded output."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.baselines.perf_judge import problem_of
from servemap.measure.baselines.perf_tool import MARK, read_perf
from servemap.measure.baselines.tool import Ended, Measured, Part, Place
from servemap.model.baselines import CollectiveBaseline, Operation
from servemap.parsers.communication.busbw import busbw_factor
from servemap.parsers.kinds import parse
from tests.corpus import read_sample

HEAD = """# nThread 1 nGpus 2 minBytes 8192 maxBytes 16384 step: 2(factor) iters: 20 validation: 1
# Using devices
#  Rank  0 Group  0 Pid 100 on h1 device  0 [0000:18:00] NVIDIA H100
#  Rank  1 Group  0 Pid 100 on h1 device  1 [0000:2a:00] NVIDIA H100
#
#                                                    out-of-place                      in-place
#   size    count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#    (B) (elements)                    (us) (GB/s) (GB/s)        (us) (GB/s) (GB/s)
"""
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 5.0 \n"


def row(size: int, wrong: str = "0", inside: str = "0", kind: str = "float sum") -> str:
    rate = f"10.00 {size / 1e4:.2f} {size / 1e4:.2f}"
    return f"{size} {size // 4} {kind} -1 {rate} {wrong} {rate} {inside}\n"


def table(*rows: str) -> str:
    return HEAD + "".join(rows or (row(8192), row(16384))) + TAIL


def part(ranks: int = 2) -> Part:
    spec = CollectiveBaseline(
        id="x", kind="collective", tool="nccl-tests", operations=["all_reduce"],
        sizes=["8K", "16K"], nodes="each", launch="process",
    )  # fmt: skip
    return Part(spec, (Place("n1", "10.0.0.1", ranks, "/python", "/folder"),), {}, 29500)


def read(output: str) -> Measured:
    marks = [
        {"program": "all_reduce_perf", "path": "/p"}, {"begin": "all_reduce 8192"},
        {"end": "all_reduce 8192", "code": 0},
    ]  # fmt: skip
    program, begin, end = (f"{MARK}{json.dumps(mark)}\n" for mark in marks)
    return read_perf(part(), {"n1": Ended(0, None, f"{program}{begin}{output}{end}")})


def test_a_whole_table_is_a_measurement() -> None:
    found = read(table())
    assert found.problems == []
    assert [(one["size_bytes"], one["busbw_bytes_per_s"]) for one in found.rows] == [
        (8192, 0.82e9), (16384, 1.64e9),
    ]  # fmt: skip


def test_iterations_are_those_that_the_program_ran() -> None:
    found = read(table().replace("iters: 20", "iters: 3"))
    assert {one["iterations"] for one in found.rows} == {3}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (table().replace(TAIL, ""), "no count of values out of bounds"),
        (table().replace("values : 0 OK", "values : 12 FAILED"), "counts 12 wrong values"),
        (table().replace(": 5.0", ": 5.0 FAILED"), "NCCL_TESTS_MIN_BW"),
        (table(row(8192, wrong="N/A"), row(16384)), "8192 bytes: its values were not checked"),
        (table(row(8192), row(16384, wrong="nan")), "16384 bytes: its values were not checked"),
        (table(row(8192), row(16384, inside="7")), "wrong values arrived at 16384 bytes"),
        (table() + table(row(8192, wrong="9"), row(16384)), "it printed 2 tables"),
        (table() + "h1: Test NCCL failure common.cu:958 'unhandled'\n", "Test NCCL failure"),
        (table(row(8192), row(16384), row(16384)), "more than once: all_reduce of 16384 bytes"),
        (table(row(8200), row(16384)), "not measured: all_reduce of 8192 bytes"),
        (table(row(4104), row(16384)), "not measured: all_reduce of 8192 bytes"),
        (table(row(8192), row(16384, kind="half sum")), "its values are half"),
        (table(row(8192), row(16384, kind="float max")), "reduced by max"),
        (table(row(8192), row(16384, kind="float none")), "reduced by nothing"),
        ("# all_gather_perf\n" + table(), "its table is of all_gather_perf"),
        (table().replace("(GB/s)", "(MB/s)"), "it printed no row"),
        (table().replace("(us)", "(ms)"), "it printed no row"),
        ("".join(line for line in table().splitlines(True) if "Rank" not in line), "which ranks"),
        (table().replace(HEAD.splitlines()[2], "#"), "did not list rank 0"),
        (table().replace("device  1 [0000:2a:00]", "device  0 [0000:18:00]"), "on one card of n1"),
        (table().replace("10.00 1.64 1.64 0", "10.00 1.64 -5 0"), "busbw is -5 GB/s"),
        (table().replace("10.00 1.64 1.64 0", "10.00 492 492 0"), "algbw is 492 GB/s"),
        (table().replace("10.00 1.64 1.64 0", "10.00 nan 1.64 0"), "algbw is none"),
        (table().replace("10.00 1.64 1.64 0", "0.00 1.64 1.64 0"), "16384 bytes: its time"),
        (table().replace("10.00 1.64 1.64 0", "-4.00 1.64 1.64 0"), "16384 bytes: its time"),
    ],
)
def test_what_is_no_measurement_keeps_no_row_and_says_why(output: str, said: str) -> None:
    found = read(output)
    assert found.rows == []
    assert said in found.problems[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("Rank  1", "Rank  0"), "did not find each other"),
        (lambda text: text.replace(HEAD.splitlines()[3], "#"), "did not find each other"),
    ],
)
def test_processes_that_did_not_find_each_other_are_told_first(
    change: Callable[[str], str], said: str
) -> None:
    (problem,) = read(change(table())).problems
    assert said in problem and "MPI=1" in problem


def test_all_to_all_in_place_is_not_checked_and_need_not_be() -> None:
    # https://github.com/NVIDIA/nccl-tests/issues/287
    one = row(8192, inside="N/A", kind="float none").replace("0.82 0.82", "0.82 0.41")
    printed = parse("nccl-tests", table(one).encode()).data
    assert problem_of("all_to_all", printed, ["n1"] * 2) is None


@pytest.mark.parametrize(
    ("file", "operation", "ranks"),
    [
        ("007_dgxc_allreduce_h100_mpi_new.txt", "all_reduce", 8),
        ("016_interleaved_info_2xA100_pcie.log", "all_reduce", 2),
        ("017_interleaved_info_2xA100_fault_topo.log", "all_reduce", 2),
        ("019_efa_16gpu_2node_prefixed_full.log", "all_reduce", 16),
    ],
)
def test_recorded_runs_that_checked_their_values_are_measurements(
    file: str, operation: Operation, ranks: int
) -> None:
    printed = parse("nccl-tests", read_sample(f"nccl_tests/{file}")).data
    nodes = [f"n{rank // 8}" for rank in range(ranks)]
    assert problem_of(operation, printed, nodes) is None


@pytest.mark.parametrize(
    ("file", "operation"),
    [("001_sb_allreduce_8xA100_old_NA_inlinelog.log", "all_reduce"),
     ("002_sb_alltoall_8xA100_no_redop.log", "all_to_all"),
     ("004_sb_reducescatter_old.log", "reduce_scatter")],
)  # fmt: skip
def test_recorded_runs_that_checked_nothing_are_none(file: str, operation: Operation) -> None:
    printed = parse("nccl-tests", read_sample(f"nccl_tests/{file}")).data
    problem = problem_of(operation, printed, ["n1"] * 8)
    assert problem is not None and "not checked" in problem[0]


def printed_as(value: float, width: int) -> str:
    """As getFloatStr of nccl-tests' src/util.cu prints a number."""
    for digits in (2, 1, 0):
        if len(said := f"{value:{width}.{digits}f}") <= width:
            return said
    return f"{value:{width}.1e}"


@given(
    st.integers(256, 1 << 32), st.floats(0.5, 1e8), st.integers(2, 1024),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
)  # fmt: skip
def test_figures_as_the_program_rounds_them_are_never_refused(
    count: int, time_us: float, ranks: int, operation: Operation
) -> None:
    size = 4 * count
    algbw = size / time_us / 1e3
    half = {
        "time_s": float(printed_as(time_us, 7)) / 1e6,
        "algbw_bytes_per_s": float(printed_as(algbw, 6)) * 1e9,
        "busbw_bytes_per_s": float(printed_as(algbw * busbw_factor(operation, ranks), 6)) * 1e9,
        "wrong": 0,
    }
    redop = "sum" if operation in ("all_reduce", "reduce_scatter") else None
    one = {"size_bytes": size, "type": "float", "redop": redop, "out_of_place": half,
           "in_place": None}  # fmt: skip
    run = {
        "duplicate_ranks": [], "ranks": ranks, "rows": [one], "wrong_at_bytes": {},
        "devices": [{"rank": n, "device": n, "bus_id": f"{n}"} for n in range(ranks)],
        "out_of_bounds": 0, "average_check": None, "collective": None, "collective_from": None,
    }  # fmt: skip
    assert problem_of(operation, {"runs": [run], "failures": []}, ["n1"] * ranks) is None
