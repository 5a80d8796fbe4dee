"""Whatever a file holds, it is analysed, stored and printed, or refused in words."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemap.analysis.traces.analyse import analyse
from servemap.analysis.traces.questions import answers
from servemap.analysis.traces.record import analysis_record
from servemap.analysis.traces.text import analysis_text
from servemap.analysis.traces.timeline import timeline
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ParseError
from tests.parts import need
from tests.tracebuilder import analysis_of, document

NAMES = st.sampled_from(
    ["nvjet_gemm", "ncclDevKernel_AllReduce", "strange", "Memcpy DtoH", "cudaGraphLaunch", "",
     "cudaStreamSynchronize", "execute_context_1(5)_generation_2(2)", "step[DECODE bs=1]",
     "ProfilerStep#3", "_C::shm_allreduce", "aten::mm", "\x1b[31m\udc80 red", "a" * 5000]
)  # fmt: skip
CATEGORIES = st.sampled_from(
    ["kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "cuda_runtime", "cuda_driver",
     "python_function", "user_annotation", "gpu_user_annotation", "Trace", "new one"]
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-5, 60), st.floats(0, 60), st.integers(0, 3).map(str), st.none())


@st.composite
def events(draw: Any) -> list[dict[str, Any]]:
    found = []
    for _ in range(draw(st.integers(1, 25))):
        found.append(
            {
                "ph": draw(st.sampled_from("XXXXXXBEsfiM")),
                "cat": draw(CATEGORIES),
                "name": draw(NAMES),
                "pid": draw(st.sampled_from([0, 1, 100, "Spans", -7])),
                "tid": draw(st.sampled_from([7, 9, 100, "x"])),
                "ts": draw(st.one_of(st.integers(0, 200), st.floats(0, 200))),
                "dur": draw(st.one_of(st.integers(0, 50), st.floats(0, 50), NUMBERS)),
                "args": {
                    "correlation": draw(st.integers(-1, 6)),
                    **draw(
                        st.dictionaries(
                            st.sampled_from(
                                ["device", "stream", "bytes", "graph node id", "Collective name",
                                 "Process Group Name", "In msg nelems"]
                            ),
                            NUMBERS,
                        )
                    ),
                },
            }
        )  # fmt: skip
    return found


def go_through(paths: list[Path], folder: Path) -> None:
    found = analyse(paths)
    said = answers(found.analysis)
    write_json_atomic(folder / "analysis.json", analysis_record(found.analysis, said, None))
    write_json_atomic(folder / "timeline.json", timeline(found.timeline()))
    text = analysis_text(found.analysis, said)
    assert "\x1b" not in text and text.encode()
    for file in found.analysis.files:
        for one in file.devices:
            figures = one.figures
            assert sum(item.exposed_ns for item in figures.classes) == figures.busy_ns
            assert figures.busy_ns + figures.idle_ns == figures.span_ns
            assert sum(figures.gaps.causes.values()) == figures.gaps.total_ns == figures.idle_ns
            assert sum(item.exposed_ns for item in figures.operators) <= figures.busy_ns
            talk = figures.communication
            assert talk.exposed_ns + talk.hidden_ns == talk.total_ns
            in_steps = sum(step.device_busy_ns or 0 for step in one.steps)
            assert not one.steps or in_steps + one.outside_steps_ns == figures.busy_ns


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(files=st.lists(events(), min_size=1, max_size=3))
def test_any_events_are_analysed_or_refused(
    files: list[list[dict[str, Any]]], tmp_path: Path
) -> None:
    paths = []
    for number, one in enumerate(files):
        paths.append(tmp_path / f"{number}.json")
        text = json.dumps(document(one, rank=number, world=len(files)))
        paths[-1].write_text(text)
    try:
        go_through(paths, tmp_path)
    except ParseError:
        return


@pytest.mark.parametrize("folder", ["kineto_traces", "kineto_full", "nsys", "own"])
def test_recorded_files_are_analysed_or_refused(folder: str, tmp_path: Path) -> None:
    done = []
    for path in sorted((Path(need("corpus")) / folder).iterdir()):
        try:
            go_through([path], tmp_path)
            done.append(path.name)
        except ParseError as refused:
            assert refused.remedy
    assert len(done) >= {"kineto_traces": 10, "kineto_full": 8, "nsys": 2, "own": 4}[folder]


@pytest.mark.parametrize("at", [0.01, 0.3, 0.7, 0.99])
def test_a_recorded_file_cut_anywhere_is_analysed_or_refused(at: float, tmp_path: Path) -> None:
    whole = (Path(need("corpus")) / "kineto_full/sampled_rank0.json.gz").read_bytes()
    plain = gzip.decompress(whole)
    for name, data in (("cut.json", plain), ("cut.json.gz", whole)):
        (tmp_path / name).write_bytes(data[: int(len(data) * at)])
        file = analysis_of([tmp_path / name]).files[0]
        assert file.file.lost
