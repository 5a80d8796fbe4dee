"""The timeline is such that a trace processor takes every event of it."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.traces import timeline as module
from servemap.analysis.traces.analyse import analyse
from servemap.analysis.traces.timeline import timeline
from tests.parts import need
from tests.tracebuilder import kernel, write


def drawn(paths: list[Path]) -> list[dict[str, Any]]:
    document = json.loads(json.dumps(timeline(analyse(paths).timeline()), allow_nan=False))
    assert document["otherData"] == {"profiled": "true"}
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def check(events: list[dict[str, Any]]) -> None:
    """Every event has what the Trace Event Format asks for; those of one track never overlap."""
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in events:
        assert isinstance(one["name"], str) and one["name"]
        if one["ph"] == "M":
            assert one["name"] in ("process_name", "thread_name") and one["args"]["name"]
            continue
        assert one["ph"] == "X" and (one["pid"], one["tid"]) in named
        assert one["ts"] >= 0 and one["dur"] >= 0
        tracks.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    for spans in tracks.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert start >= end - 1e-3


@pytest.mark.parametrize(
    "names",
    [
        ["kineto_full/sglang_qwen3_8b_prefill_decode.json.gz"],
        ["kineto_full/sampled_rank0.json.gz", "kineto_full/sampled_rank1.json.gz"],
        ["own/vllm_tp2_rank0.pt.trace.json.gz", "own/vllm_tp2_rank1.pt.trace.json.gz"],
    ],
)
def test_a_recorded_capture_is_drawn_as_the_format_asks(names: list[str]) -> None:
    paths = [Path(need("corpus")) / name for name in names]
    events = drawn(paths)
    check(events)
    assert len({one["pid"] for one in events}) == len(names)
    assert len(json.dumps(events)) < 5_000_000


def test_a_long_trace_makes_a_small_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SPANS", 10)
    path = write(tmp_path / "t.json", [kernel("nvjet_a", at * 10, 5) for at in range(500)])
    events = drawn([path])
    check(events)
    gemm = [one for one in events if one["name"] == "gemm"]
    assert len(gemm) == 10
    assert gemm[0]["ts"] == 0 and gemm[-1]["ts"] + gemm[-1]["dur"] == 4995
