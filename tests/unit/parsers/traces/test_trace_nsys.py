import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemap.analysis.traces.analyse import analyse
from servemap.model.errors import ParseError
from servemap.parsers.traces.read import read_traces
from servemap.parsers.traces.table import Kind
from tests.parts import need
from tests.tracebuilder import analysis_of

PROCESS = 100 << 24
THREAD = PROCESS | 101

SCHEMA = """
create table StringIds (id integer, value text);
create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, deviceId integer,
  streamId integer, correlationId integer, globalPid integer, demangledName integer,
  graphNodeId integer);
create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, deviceId integer,
  streamId integer, correlationId integer, globalPid integer, bytes integer, copyKind integer);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, globalTid integer,
  correlationId integer, nameId integer);
create table NVTX_EVENTS (start integer, end integer, globalTid integer, text text,
  textId integer);
create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer);
"""


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.executemany(
            "insert into StringIds values (?, ?)",
            [(1, "nvjet_gemm"), (2, "ncclDevKernel_AllReduce"), (3, "cudaLaunchKernel_v7000"),
             (4, "cudaGraphLaunch_v10000"), (5, "step[DECODE bs=4]")],
        )  # fmt: skip
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, ?, ?, ?, ?, ?)",
            [(100, 200, 7, 1, PROCESS, 1, None), (150, 260, 9, 2, PROCESS, 2, None),
             (300, 310, 7, 2, PROCESS, 1, 44), (400, 390, 7, 3, PROCESS, 1, None),
             (None, 390, 7, 3, PROCESS, 1, None)],
        )  # fmt: skip
        database.execute(
            "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (270, 280, 0, 7, 4, ?, 4096, 1)",
            [PROCESS],
        )
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?)",
            [(90, 95, THREAD, 1, 3), (96, 99, THREAD, 2, 4)],
        )
        database.executemany(
            "insert into NVTX_EVENTS values (?, ?, ?, ?, ?)",
            [(80, 320, THREAD, None, 5), (100, None, THREAD, "a mark", None),
             (81, 90, THREAD, "schedule", None)],
        )  # fmt: skip
        database.execute("insert into TARGET_INFO_SESSION_START_TIME values (1700000000000000000)")
    return path


def test_an_export_becomes_the_same_table(export: Path) -> None:
    (trace,) = read_traces(export)
    events = trace.events
    assert (trace.format, trace.base_ns, trace.rank) == ("nsys", 1700000000000000000, None)
    assert [events.names[name] for name in events.name[events.device]] == [
        "nvjet_gemm", "ncclDevKernel_AllReduce", "nvjet_gemm", "Memcpy kind 1",
    ]  # fmt: skip
    assert events.in_graph[events.device].tolist() == [False, False, True, False]
    assert events.sizes == {3: 4096}
    assert (events.kind == Kind.ANNOTATION).sum() == 2
    assert dict(trace.skipped) == {
        "negative or impossible duration": 1,
        "without a time or duration": 1,
    }


def test_an_export_is_analysed_like_any_trace(export: Path) -> None:
    report = analysis_of([export]).files[0]
    one = report.devices[0].figures
    assert (one.span_ns, one.busy_ns) == (210, 180)
    assert (one.communication.total_ns, one.communication.hidden_ns) == (110, 50)
    assert one.copies[0].bytes == 4096
    assert one.launches.kernels_by_graph == 2
    step = report.devices[0].steps[0]
    assert (step.phase, step.kernels) == ("decode", 3)


def test_damaged_and_foreign_databases_are_refused_in_words(export: Path, tmp_path: Path) -> None:
    data = export.read_bytes()
    cut = tmp_path / "cut.sqlite"
    for length in (17, 100, 4096, len(data) // 2):
        cut.write_bytes(data[:length])
        with pytest.raises(ParseError):
            read_traces(cut)
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        database.execute("create table a (b)")
    with pytest.raises(ParseError, match="no event with a duration"):
        read_traces(tmp_path / "other.sqlite")
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"QDST")
    with pytest.raises(ParseError, match="through its export"):
        read_traces(report)


@pytest.mark.parametrize(
    ("name", "length"), [("006_report1.sqlite", 109_287_695), ("007_report2.sqlite", 72_415_849)]
)
def test_recorded_exports(name: str, length: int) -> None:
    (trace,) = read_traces(Path(need("corpus")) / "nsys" / name)
    events = trace.events
    counts = [int((events.kind == kind).sum()) for kind in (Kind.KERNEL, Kind.MEMCPY, Kind.RUNTIME)]
    assert counts == [1, 48, 6]
    assert int((events.end - events.start)[events.kind == Kind.KERNEL][0]) == length
    assert trace.base_ns is not None and len(trace.devices) == 4


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.tuples(st.integers(16, 12_000), st.integers(0, 255)), min_size=1, max_size=200))
def test_damaged_bytes_are_read_around_or_refused(
    export: Path, tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(export.read_bytes())
    for at, value in changes:
        data[at % len(data)] = value
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(data)
    try:
        assert all(len(one.events) for one in read_traces(path))
    except ParseError as refused:
        assert refused.where == str(path)


@pytest.fixture
def two_workers(export: Path) -> Path:
    """The export with a second worker, whose only device is its number 0 too."""
    other, thread = 200 << 24, 200 << 24 | 201
    with sqlite3.connect(export) as database:
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, ?, ?, ?, ?, ?)",
            [(105, 205, 7, 1, other, 1, None), (170, 262, 9, 2, other, 2, None)],
        )
        database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?)",
            [(92, 97, thread, 1, 3), (98, 99, thread, 2, 3), (1, 2, 300 << 24 | 300, 1, 3)],
        )
    return export


def test_each_process_with_device_work_is_a_rank_of_its_own(two_workers: Path) -> None:
    first, second = read_traces(two_workers)
    assert int(first.events.device.sum()) == 4
    assert int(second.events.device.sum()) == 2
    assert second.events.start[second.events.device].tolist() == [105, 170]
    assert (second.events.kind == Kind.RUNTIME).sum() == 2, "the other processes' calls are not its"
    assert first.base_ns == second.base_ns


def test_ranks_are_counted_over_the_files_of_all_nodes(two_workers: Path) -> None:
    other = two_workers.with_name("node2.sqlite")
    other.write_bytes(two_workers.read_bytes())
    found = analyse([two_workers, other]).analysis
    assert [one.file.rank for one in found.files] == [0, 1, 2, 3]
    assert {one.file.world_size for one in found.files} == {4}
    assert found.across is not None, "they meet in their collectives"


def test_exports_of_two_sessions_that_lie_apart_are_no_capture(two_workers: Path) -> None:
    other = two_workers.with_name("later.sqlite")
    other.write_bytes(two_workers.read_bytes())
    with sqlite3.connect(other) as database:
        database.execute(
            "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + 60000000000"
        )
    with pytest.raises(ParseError, match=r"they lie 60\.0 s apart"):
        analyse([two_workers, other])


def test_a_view_without_an_end_is_no_table_of_events(export: Path) -> None:
    with sqlite3.connect(export) as database:
        database.executescript(
            "drop table CUPTI_ACTIVITY_KIND_KERNEL; create view CUPTI_ACTIVITY_KIND_KERNEL as with"
            " recursive c(start) as (select 1 union all select start + 1 from c)"
            " select start, start + 1 as end, 0 as deviceId, 0 as streamId from c"
        )
    (trace,) = read_traces(export)
    assert Kind.KERNEL not in trace.events.kind.tolist()
