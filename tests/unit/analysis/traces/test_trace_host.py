from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.analysis.traces.host import HostFigures, self_times
from servemap.parsers.traces.kineto import read_kineto
from tests.parts import need
from tests.tracebuilder import analysis_of, event, write

EVENTS = [
    event("user_annotation", "execute_context_1(3)_generation_0(0)", 0, 60),
    event("cpu_op", "aten::linear", 0, 50),
    event("cpu_op", "aten::mm", 10, 30),
    event("cpu_op", "_C::shm_allreduce", 60, 20),
    event("cpu_op", "aten::mm", 70, 5, tid=200),
    event("cpu_op", "odd one", 90, 10),
    event("python_function", "a.py(1): outer", 0, 100),
    event("python_function", "a.py(2): inner", 20, 30),
]


def host(tmp_path: Path) -> HostFigures:
    found = analysis_of([write(tmp_path / "t.json", EVENTS)]).files[0].host
    assert found is not None
    return found


def test_operators_by_their_own_time_and_threads(tmp_path: Path) -> None:
    found = host(tmp_path)
    assert {one.name: (one.calls, one.self_ns, one.total_ns) for one in found.operators} == {
        "aten::mm": (2, 35_000, 35_000),
        "aten::linear": (1, 20_000, 50_000),
        "_C::shm_allreduce": (1, 20_000, 20_000),
        "odd one": (1, 10_000, 10_000),
    }
    assert {one.name: one.self_ns for one in found.functions} == {
        "a.py(1): outer": 70_000,
        "a.py(2): inner": 30_000,
    }
    assert [(one.thread, one.operators, one.busy_ns) for one in found.threads] == [
        (100, 4, 80_000),
        (200, 1, 5_000),
    ]
    assert {one.id: one.exposed_ns for one in found.classes} == {
        "gemm": 55_000,
        "communication": 20_000,
        "unmatched": 10_000,
    }
    assert found.unmatched_share == 10 / 85


def test_communication_is_hidden_by_another_thread_only(tmp_path: Path) -> None:
    talk = host(tmp_path).communication
    assert (talk.total_ns, talk.hidden_ns, talk.exposed_ns) == (20_000, 5_000, 15_000)


def test_phases_of_a_host(tmp_path: Path) -> None:
    [phase] = host(tmp_path).phases
    assert (phase.phase, phase.steps, phase.host_mean_ns) == ("prefill", 1, 60_000)
    assert phase.operators_ns == 50_000


def outer_first(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[0], -pair[1]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=12))
def test_own_times_of_one_thread_make_its_busy_time(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("host")
    events = [event("cpu_op", "a", start, length) for start, length in pairs]
    table = read_kineto(write(folder / "t.json", events)).events
    own = self_times(table, np.arange(len(table)))
    ticks = {tick for start, length in pairs for tick in range(start, start + length)}
    assert (own >= 0).all()
    assert int(own.sum()) <= 1000 * len(ticks)
    # Calls of one thread lie within one another or apart; what does not is cut.
    nested = all(
        start + length <= other or other + more <= start + length
        for (start, length), (other, more) in combinations(sorted(pairs, key=outer_first), 2)
    )
    if nested:
        assert int(own.sum()) == 1000 * len(ticks)


def test_recorded_cpu_traces_are_not_empty() -> None:
    corpus = Path(need("corpus")) / "own"
    sglang = analysis_of([corpus / "sglang_TP0.trace.json.gz"]).files[0]
    assert sglang.host is not None
    assert [one.phase for one in sglang.host.phases] == ["prefill", "decode"]
    assert sglang.host.unmatched_share < 0.05
    front = analysis_of([corpus / "vllm_asyncllm.pt.trace.json.gz"]).files[0]
    assert front.file.rank is None
    assert front.host is not None and front.host.functions and not front.host.operators
