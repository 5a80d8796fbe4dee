import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from servemap.parsers.traces.kineto import read_kineto
from servemap.parsers.traces.read import read_traces
from servemap.parsers.traces.table import Kind, Lane, Trace
from tests.parts import need
from tests.tracebuilder import document, event, kernel, launch, write


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


TRICKY = [
    event("cpu_op", 'a "}, {" b', 1, 2, shapes=[[1], [2]], nested=[{"ph": "X"}, {"ph": "s"}]),
    {"ph": "s", "id": 1, "pid": 100, "tid": 100, "ts": 1, "cat": "ac2g", "name": "ac2g"},
    kernel("void k<3>(float*), {ä", 5.25, 1.125, correlation=4),
    {"name": "process_name", "ph": "M", "pid": 100, "tid": 0, "args": {"name": "python"}},
    launch(3, 1, 4),
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3, "pid": 1, "tid": 1},
]
EXPECTED = [
    (1000, 3000, Kind.OPERATOR, 'a "}, {" b', Lane(100, 100), -1),
    (5250, 6375, Kind.KERNEL, "void k<3>(float*), {ä", Lane(0, 7), 4),
    (3000, 4000, Kind.RUNTIME, "cudaLaunchKernel", Lane(100, 100), 4),
]


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    one = trace.events
    return [
        (
            int(one.start[at]),
            int(one.end[at]),
            one.kind[at],
            one.names[one.name[at]],
            one.lanes[one.lane[at]],
            int(one.correlation[at]),
        )
        for at in range(len(one))
    ]


def layouts() -> dict[str, bytes]:
    whole = document(TRICKY)
    body = ",\n  ".join(json.dumps(one, indent=4) for one in TRICKY)
    return {
        "spaced": json.dumps(whole).encode(),
        "minified": json.dumps(whole, separators=(",", ":")).encode(),
        "indented": json.dumps(whole, indent=2).encode(),
        "unescaped": json.dumps(whole, ensure_ascii=False).encode(),
        "bare": json.dumps(TRICKY).encode(),
        "other order": json.dumps([dict(reversed(one.items())) for one in TRICKY]).encode(),
        "events first": f'{{"traceEvents": [{body}], "distributedInfo": {{"rank": 0}}}}'.encode(),
        "with a mark of order": b"\xef\xbb\xbf" + json.dumps(whole).encode(),
        "a comma too many": f'{{"traceEvents": [{body},]}}'.encode(),
    }


@pytest.mark.parametrize("name", layouts())
def test_every_layout_gives_the_same_events(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(layouts()[name])
    trace = read_kineto(path)
    assert rows(trace) == EXPECTED
    assert not trace.lost and not trace.skipped


@pytest.mark.parametrize("name", ["spaced", "minified", "indented", "events first"])
def test_small_pieces_give_the_same_events(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servemap.parsers.traces.stream.PIECE_BYTES", 7)
    path = tmp_path / "trace.json"
    path.write_bytes(layouts()[name])
    trace = read_kineto(path)
    assert rows(trace) == EXPECTED
    assert (trace.rank, trace.lost, dict(trace.skipped)) == (0, "", {})


def test_packed_files_are_read(tmp_path: Path) -> None:
    text = layouts()["indented"]
    half = len(text) // 2
    packed = {
        "one.gz": gzip.compress(text),
        "two.json.gz": gzip.compress(text[:half]) + gzip.compress(text[half:]),
        "one.zst": zstd(text),
        "named_wrongly.json": gzip.compress(text),
    }
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
        assert rows(read_traces(tmp_path / name)[0]) == EXPECTED, name


def test_a_file_cut_anywhere_gives_its_whole_events(tmp_path: Path) -> None:
    text = layouts()["spaced"]
    first = text.index(b'{"ph"')
    ends = [text.index(json.dumps(one).encode()) + len(json.dumps(one)) for one in TRICKY]
    path = tmp_path / "cut.json"
    for cut in range(first, len(text) - 2, 3):
        path.write_bytes(text[:cut])
        whole = [at for at in (0, 2, 4) if ends[at] <= cut]
        if not whole:
            with pytest.raises(ParseError):
                read_kineto(path)
            continue
        trace = read_kineto(path)
        assert rows(trace) == [EXPECTED[at // 2] for at in whole]
        assert "does not end" in trace.lost and str(cut) in trace.lost


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_packed_file_that_ends_early_says_so(pack: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 30, 30_000)
    events = [event("cpu_op", f"op {one}", at, 1) for at, one in enumerate(noise)]
    data = pack(json.dumps(document(events)).encode())
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) // 2])
    trace = read_kineto(path)
    assert 5_000 < len(trace.events) < 25_000
    assert "end early" in trace.lost
    assert trace.rank == 0


@pytest.mark.parametrize("bare", [False, True])
def test_what_stands_behind_a_trace_is_said(bare: bool, tmp_path: Path, monkeypatch: Any) -> None:
    events = [kernel("k", 1, 2), launch(3, 1, 1)]
    text = json.dumps(events if bare else document(events)).encode()
    path = tmp_path / "trace.json"
    for behind, lost in ((b"", False), (b"\n\0\0", False), (b"\n" + text, True), (b"x", True)):
        path.write_bytes(text + behind)
        found = read_kineto(path)
        assert len(found.events) == 2 and found.rank == (None if bare else 0)
        assert ("behind the end" in found.lost) is lost
    # Another document of any length costs no memory.
    monkeypatch.setattr("servemap.parsers.traces.json_events._LARGEST_HEAD", 1 << 20)
    path.write_bytes(text + b" " * (3 << 20) + b"x")
    assert "behind the end" in read_kineto(path).lost


@pytest.mark.parametrize(
    ("odd", "correlation"),
    [
        ({"args": {"correlation": "12", "device": 0, "stream": 7}}, 12),
        ({"args": {"correlation": "x", "device": 0, "stream": 7}}, -1),
        ({"args": {"correlation": None, "device": 0, "stream": 7}}, -1),
        ({"args": None}, -1),
        ({"args": [1]}, -1),
        ({"pid": None, "args": {}}, -1),
        ({"tid": 7.5, "args": {}}, -1),
    ],
)
def test_odd_words_around_an_event_cost_no_device_time(
    odd: dict[str, Any], correlation: int, tmp_path: Path
) -> None:
    found = read_kineto(write(tmp_path / "t.json", [{**kernel("k", 1, 2), **odd}, launch(5, 1, 3)]))
    assert found.skipped == {} and len(found.events) == 2
    assert int(found.events.end[0] - found.events.start[0]) == 2000
    assert int(found.events.correlation[0]) == correlation


def test_an_event_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servemap.parsers.traces.stream.PIECE_BYTES", 64)
    monkeypatch.setattr("servemap.parsers.traces.json_events._LARGEST_EVENT", 1000)
    whole = json.dumps(kernel("good", 1, 2))
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{whole}, {{"ph": "X", "name": "{"x" * 100_000}')
    trace = read_kineto(path)
    assert len(trace.events) == 1
    assert trace.lost and trace.bytes_read < 10_000


def test_a_large_event_is_read_in_many_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servemap.parsers.traces.stream.PIECE_BYTES", 64)
    large = kernel("large", 1, 2, shapes=[[number, {"a": "}, {"}] for number in range(500)])
    events = read_kineto(write(tmp_path / "t.json", [large, kernel("next", 5, 1)])).events
    assert events.end.tolist() == [3000, 6000]


def test_as_many_names_and_threads_as_there_are_stay_apart(tmp_path: Path) -> None:
    count = 33_000
    events = [kernel(f"k{at}", at, 1, stream=at, tid=at) for at in range(count)]
    found = read_kineto(write(tmp_path / "t.json", events)).events
    assert len(set(found.name.tolist())) == len(set(found.lane.tolist())) == count
    assert found.names[found.name[-1]] == f"k{count - 1}"
    assert found.lanes[found.lane[-1]] == Lane(0, count - 1)


def test_times_stay_whole_ns(tmp_path: Path) -> None:
    text = (
        '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,'
        '"ts":5095738523936.917,"dur":0.003},'
        '{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,'
        '"ts":5095738523936.926,"dur":1.999}]}'
    )
    path = tmp_path / "trace.json"
    path.write_text(text)
    events = read_kineto(path).events
    assert events.start.tolist() == [5095738523936917, 5095738523936926]
    assert events.end.tolist() == [5095738523936920, 5095738523938925]
    # A float holds only quarters of a us here; the digits of the file count.
    path.write_text(text.replace("5095738523936.9", "1767189312000000.9"))
    events = read_kineto(path).events
    assert events.start.tolist() == [1767189312000000917, 1767189312000000926]


BAD: dict[str, tuple[str, str]] = {
    '"ts": "5", "dur": 1': ("ts", "Expected"),
    '"ts": 5': ("without a time or duration", ""),
    '"ts": null, "dur": 1': ("without a time or duration", ""),
    '"ts": NaN, "dur": 1': ("without a time or duration", ""),
    '"ts": 5, "dur": -1': ("negative", ""),
    '"ts": 5, "dur": -0.001': ("negative", ""),
    '"ts": 123456789012345678901234567890, "dur": 1': ("impossible", ""),
    '"ts": 1e400, "dur": 1': ("", ""),
    '"ts": 5, "dur": 1e17': ("impossible", ""),
    '"ts": 5, "dur": 18446744073709551617': ("impossible", ""),
    '"ts": 5, "dur": true': ("dur", "Expected"),
    '"ts": [5], "dur": 1': ("ts", "Expected"),
}


@pytest.mark.parametrize("times", BAD)
def test_one_bad_event_costs_no_good_one(times: str, tmp_path: Path) -> None:
    good = json.dumps(kernel("good", 3, 4))
    bad = f'{{"ph": "X", "cat": "kernel", "name": "bad", "pid": 0, "tid": 7, {times}}}'
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{good}, {bad}, {good}]}}')
    trace = read_kineto(path)
    assert [(start, end) for start, end, *_ in rows(trace)] == [(3000, 7000)] * 2
    assert sum(trace.skipped.values()) == 1
    for word in BAD[times]:
        assert word in next(iter(trace.skipped))


def test_arguments_of_odd_types_cost_nothing(tmp_path: Path) -> None:
    odd: list[Any] = [
        kernel("a", 1, 1, stream="default", correlation=1),
        event("gpu_memcpy", "b", 2, 1, device=0, stream=7, bytes="77"),
        event("gpu_memcpy", "c", 3, 1, device=0, stream=7, bytes=1 << 70),
        event("gpu_memcpy", "d", 4, 1, device=0, stream=7, bytes={"x": 1}),
        event("kernel", "e", 5, 1, pid="Spans", tid="x"),
    ]
    events = read_kineto(write(tmp_path / "t.json", odd)).events
    assert events.lanes[events.lane[0]] == Lane(0, "default")
    assert events.lanes[events.lane[4]] == Lane("Spans", "x")
    assert events.sizes == {1: 77}


def test_an_operator_with_a_stream_is_no_device_work(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [event("cpu_op", "triton_", 1, 9, stream=7), kernel("k", 2, 1)]
    )
    assert read_kineto(path).events.device.tolist() == [False, True]


def test_an_absurd_duration_is_refused(tmp_path: Path) -> None:
    events = [kernel("k", at, 5) for at in range(0, 100, 10)]
    path = write(tmp_path / "t.json", [*events, kernel("absurd", 50, 3e6)])
    trace = read_kineto(path)
    assert trace.events.end.max() == 95_000
    assert dict(trace.skipped) == {"impossibly long beside all others": 1}
    long = write(tmp_path / "u.json", [*events, kernel("long", 50, 9e5), launch(0, 4e5, 1)])
    assert not read_kineto(long).skipped


def test_a_time_far_from_all_others_is_refused(tmp_path: Path) -> None:
    events = [kernel("k", 5e12 + at, 5) for at in range(0, 100, 10)]
    trace = read_kineto(write(tmp_path / "t.json", [*events, kernel("lost", 0, 1)]))
    assert len(trace.events) == 10
    assert dict(trace.skipped) == {"more than an hour from all others": 1}


def half(phase: str, ts: float | str, tid: int = 100, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": 100, "tid": tid, "ts": ts, **more}


def test_begins_and_ends_are_paired_on_their_thread(tmp_path: Path, monkeypatch: Any) -> None:
    events = [
        half("B", 10, name="outer", cat="cpu_op"),
        half("B", 11, name="other", cat="cuda_runtime", tid=7, args={"correlation": 5}),
        half("B", 12.5, name="inner", cat="cpu_op"),
        half("E", 14.25),
        half("E", 20, tid=7),
        kernel("k", 1, 2),
        half("E", 30),
    ]
    path = write(tmp_path / "t.json", events)
    expected = [
        (1000, 3000, "k", -1), (10_000, 30_000, "outer", -1),
        (11_000, 20_000, "other", 5), (12_500, 14_250, "inner", -1),
    ]  # fmt: skip
    for piece in (1 << 19, 64):
        monkeypatch.setattr("servemap.parsers.traces.stream.PIECE_BYTES", piece)
        trace = read_kineto(path)
        found = sorted((row[0], row[1], row[3], row[5]) for row in rows(trace))
        assert (found, dict(trace.skipped)) == (expected, {})


def test_halves_of_an_interval_are_counted_and_cost_no_other(tmp_path: Path) -> None:
    events = [
        half("E", 3),
        kernel("k", 1, 2),
        half("B", 4, name="never ended"),
        half("B", 1e300, name="far", tid=4),
        {**half("B", 1, name="no time"), "ts": None},
        half("B", "x", name="odd"),
        half("B", 9, name="backwards", tid=3),
        half("E", 8, tid=3),
    ]
    trace = read_kineto(write(tmp_path / "t.json", events))
    assert [row[3] for row in rows(trace)] == ["k"]
    assert dict(trace.skipped) == {
        "an end without a begin": 1,
        "a begin without an end": 1,
        "a begin or end without a possible time": 2,
        "a begin or end that is not well formed": 1,
        "negative or impossible duration": 1,
    }


def test_a_paired_time_keeps_its_digits(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '[{"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 1767189312000000.917},'
        '{"ph": "E", "pid": 1, "tid": 1, "ts": 1767189312000002.920}]'
    )
    [row] = rows(read_kineto(path))
    assert row[:2] == (1767189312000000917, 1767189312000002920)


def test_ranks_mixed_in_one_file_are_refused(tmp_path: Path) -> None:
    one = [launch(at, 1, at) for at in range(1, 100, 10)]
    other = [launch(at + 5, 1, at) for at in range(1, 100, 10)]
    with pytest.raises(ParseError, match="mixed in time"):
        read_kineto(write(tmp_path / "t.json", one + other))
    later = [launch(at + 1000, 1, at) for at in range(1, 100, 10)]
    assert len(read_kineto(write(tmp_path / "u.json", one + later)).events) == 20


@pytest.mark.parametrize(
    "data",
    [
        b"", b"   ", b"{}", b"[]", b"null", b"hello", b'{"a": 1', b"\x1f\x8b", b"\x28\xb5\x2f\xfd",
        gzip.compress(b"", mtime=0), b'{"traceEvents": []}', b'{"traceEvents": [1, "x", null, []]}',
        b'{"traceEvents": [{"ph": "M", "name": "x"}]}', b'{"traceEvents": {"a": 1}}',
        b"[" * 100_000, b'{"traceEvents":' + b"[" * 100_000, b"[{},{},{}]", b"PK\x03\x04abc",
        b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": "1"}]}',
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_words(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(ParseError) as refused:
        read_traces(path)[0]
    assert refused.value.where == str(path)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_damage_never_gives_anything_but_events_or_a_refusal(data: Any, tmp_path: Path) -> None:
    text = bytearray(layouts()[data.draw(st.sampled_from(["spaced", "indented", "bare"]))])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=4))
    path = tmp_path / "damaged.json"
    path.write_bytes(bytes(text))
    try:
        trace = read_traces(path)[0]
    except ParseError:
        return
    assert len(trace.events) <= 4
    assert (trace.events.end >= trace.events.start).all()


CORPUS = {
    "kineto_traces/002_amd_mi250_rocm62.json": (14, 111, None),
    "kineto_traces/007_triton_kernel.json": (1, 2, None),
    "kineto_traces/009_nccl_ring_ll_old_names_subset.json": (1014, 54622, 0),
    "kineto_traces/011_sampled_rank1_ws128_subset.json": (1104, 651026, 1),
    "kineto_traces/013_derived_kernel_without_dur.json": (5, None, 1),
    "kineto_traces/015_derived_new_nccl_kernel_names.json": (6, 432, 1),
    "kineto_traces/001_cpu_only_rank34.json": (0, 0, 34),
    "kineto_traces/004_cupti_profiler_no_kernels.json": (0, 0, 0),
    "kineto_traces/006_distinfo_without_rank.json": (0, 0, None),
    "kineto_full/v100_nccl_training.json.gz": (19370, 977859, 1),
}


@pytest.mark.parametrize("name", CORPUS)
def test_recorded_traces_give_the_right_kernels(name: str) -> None:
    trace = read_traces(Path(need("corpus")) / name)[0]
    count, total_us, rank = CORPUS[name]
    kernels = trace.events.take(trace.events.kind == Kind.KERNEL)
    assert (len(kernels), trace.rank) == (count, rank)
    if total_us is not None:
        assert round(int((kernels.end - kernels.start).sum()) / 1000) == total_us


def test_recorded_traces_say_what_is_missing() -> None:
    corpus = Path(need("corpus"))
    cut = read_traces(corpus / "kineto_traces/012_derived_truncated_midway.json")[0]
    assert "does not end" in cut.lost and len(cut.events) == 15
    cut = read_traces(corpus / "kineto_traces/006_distinfo_without_rank.json")[0]
    assert "1000000 bytes were read" in cut.lost
    odd = read_traces(corpus / "kineto_traces/013_derived_kernel_without_dur.json")[0]
    assert dict(odd.skipped) == {"without a time or duration": 1}
    with pytest.raises(ParseError, match="same process ids"):
        read_traces(corpus / "kineto_traces/014_derived_two_ranks_same_pid.json")[0]
    with pytest.raises(ParseError, match="no trace"):
        read_traces(corpus / "kineto_traces/016_nccl_profiler_plugin_trace.jsonl")[0]


@pytest.mark.parametrize(
    ("info", "place"),
    [
        ({"rank": 1, "world_size": 2}, (1, 2)),
        ({"rank": 3}, (3, None)),
        ({"rank": -1, "world_size": 0}, (None, None)),
        ({"rank": -1}, (None, None)),
        ({"rank": 8, "world_size": 8}, (None, 8)),
        ({"rank": True, "world_size": "8"}, (None, None)),
    ],
)
def test_a_rank_is_one_of_those_that_there_are(info: Any, place: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel("k", 1, 2)], "distributedInfo": info}))
    trace = read_kineto(path)
    assert (trace.rank, trace.world_size) == place
