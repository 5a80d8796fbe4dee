"""The analysis of a capture: from files that are those of the record, or a reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.captures import analyse_capture
from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.derived import analysis_token
from tests.tracebuilder import event, kernel, write

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

ABOUT = {"variant": "baseline", "case": "decode", "spec_sha256": "a", "ended_ns": 5}


def captured(folder: Path, **more: Any) -> Path:
    """A capture of two ranks: 30 us of a GEMM, 10 us of communication of which 4 are exposed."""
    node = folder / "n1"
    node.mkdir(parents=True)
    (folder / "load").mkdir()
    (folder / "load/client.json").write_text("{}")
    for rank in (0, 1):
        events = [
            event("user_annotation", "execute_context_0(0)_generation_2(2)", 0, 50),
            kernel("cutlass_gemm", 0, 30),
            kernel(NCCL, 24, 10, tid=8, stream=8),
        ]
        write(node / f"rank{rank}.json", events, rank=rank)
    (node / "profiler_out_0.txt").write_text("a table")
    names = ["n1/rank0.json", "n1/rank1.json", "n1/profiler_out_0.txt", "load/client.json"]
    files = {name: {"sha256": file_sha256(folder / name)} for name in names}
    about = {"schema": 1, **ABOUT}
    capture = folder / "capture.json"
    write_json_atomic(capture, {**about, "status": "ok", "files": files, **more})
    return capture


def analysed(capture: Path, token: int = 3) -> dict[str, Any]:
    output = capture.parent / "analysis.json"
    found = analyse_capture(capture, output, token)
    assert json.loads(output.read_text()) == json.loads(json.dumps(found))
    return found


def test_every_ranks_trace_is_analysed_and_marked_profiled(tmp_path: Path) -> None:
    found = analysed(captured(tmp_path))
    assert (found["status"], found["profiled"], found["token"]) == ("ok", True, 3)
    assert found["capture"] == ABOUT
    assert [file["file"]["rank"] for file in found["files"]] == [0, 1]
    figures = found["files"][1]["devices"][0]["figures"]
    talk = figures["communication"]
    assert (talk["total_ns"], talk["hidden_ns"], talk["exposed_ns"]) == (10_000, 6_000, 4_000)
    assert len(found["questions"]) == 10
    assert (
        "4 us" in found["questions"][1]["answer"] or "0.004 ms" in found["questions"][1]["answer"]
    )
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]


@pytest.mark.parametrize("status", ["not_available", "not_run"])
def test_without_a_capture_there_is_nothing_to_analyse(tmp_path: Path, status: str) -> None:
    found = analysed(captured(tmp_path, status=status))
    assert (found["status"], found["reasons"]) == ("not_available", ["no capture was taken"])
    assert "files" not in found


def test_a_trace_of_a_failed_capture_is_still_evidence(tmp_path: Path) -> None:
    assert analysed(captured(tmp_path, status="failed"))["status"] == "ok"


def test_a_file_that_is_not_the_captured_one_is_refused(tmp_path: Path) -> None:
    capture = captured(tmp_path)
    with (tmp_path / "n1/rank1.json").open("a") as trace:
        trace.write(" ")
    found = analysed(capture)
    assert found["status"] == "not_available"
    assert found["reasons"] == ["n1/rank1.json is not the file that was captured"]


def test_files_that_are_no_traces_fail_the_analysis_alone(tmp_path: Path) -> None:
    capture = captured(tmp_path)
    record = json.loads(capture.read_text())
    (tmp_path / "n1/rank0.json").write_text("no trace")
    record["files"]["n1/rank0.json"]["sha256"] = file_sha256(tmp_path / "n1/rank0.json")
    write_json_atomic(capture, record)
    found = analysed(capture)
    assert found["status"] == "failed"
    assert "rank0.json" in found["reasons"][0]


def test_no_path_leaves_the_captures_folder(tmp_path: Path) -> None:
    outside = write(tmp_path / "other.json", [kernel("k", 0, 1)])
    capture = captured(tmp_path / "c")
    record = json.loads(capture.read_text())
    record["files"] = {"../other.json": {"sha256": file_sha256(outside)}}
    write_json_atomic(capture, record)
    assert analysed(capture)["status"] == "not_available"


def test_damaged_records_are_named(tmp_path: Path) -> None:
    capture = tmp_path / "capture.json"
    capture.write_text("{")
    assert "damaged" in analysed(capture)["reasons"][0]


def test_an_analysis_is_made_again_where_it_is_of_another_capture(tmp_path: Path) -> None:
    assert analysis_token(tmp_path) == 0
    capture = captured(tmp_path)
    assert analysis_token(tmp_path) == 0
    analysed(capture, token=0)
    assert analysis_token(tmp_path) == 0
    write_json_atomic(capture, {**json.loads(capture.read_text()), "ended_ns": 6})
    assert analysis_token(tmp_path) > 0
    analysed(capture, token=7)
    assert analysis_token(tmp_path) == 7
    (tmp_path / "analysis.json").write_text("{")
    assert analysis_token(tmp_path) > 7
