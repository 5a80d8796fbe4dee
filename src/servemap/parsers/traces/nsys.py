"""Nsight Systems' sqlite exports to the event table.

The tables are those of `nsys export --type sqlite`, whose schema stands in the file itself; columns
differ between versions, so each is looked for. Times are ns since the session's start, whose epoch
time is in TARGET_INFO_SESSION_START_TIME.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from servemap.model.errors import ParseError
from servemap.parsers.traces.sanity import keep_sane
from servemap.parsers.traces.table import (
    COLUMN_TYPES,
    EventTable,
    GrowingColumn,
    Ints,
    Kind,
    Lane,
    Trace,
    writable,
)

MAGIC = b"SQLite format 3\0"

_LARGEST_NS = 1 << 62
_ROWS = 100_000

_Row = tuple[int, int, int, int, int, int, bool]
"""Start, end, name, lane, correlation, size, whether it is of a graph."""

# Kind, table, columns that name the event, size, graph node. The first column that is there counts.
_DEVICE = (
    (Kind.KERNEL, "CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName"), "", "graphNodeId"),
    (Kind.KERNEL, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (), "", "graphId"),
    (Kind.MEMCPY, "CUPTI_ACTIVITY_KIND_MEMCPY", ("copyKind",), "bytes", "graphNodeId"),
    (Kind.MEMSET, "CUPTI_ACTIVITY_KIND_MEMSET", (), "bytes", "graphNodeId"),
)
_HOST = (
    (Kind.RUNTIME, "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
    (Kind.RUNTIME, "CUPTI_ACTIVITY_KIND_DRIVER", "nameId"),
    (Kind.ANNOTATION, "NVTX_EVENTS", "textId"),
    (Kind.OTHER, "OSRT_API", "nameId"),
)


class _Reader:
    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.names: dict[str, int] = {}
        self.lanes: dict[tuple[int, int, int], int] = {}
        """By process and what names the lane: its thread, or device and stream."""
        self.rows_taken = 0
        self.sizes: dict[int, int] = {}
        self.columns_taken = [GrowingColumn(kind) for kind in COLUMN_TYPES]
        self.skipped: Counter[str] = Counter()
        # nsys writes tables only, and what a view yields need not end.
        self.tables = {
            name
            for (name,) in database.execute("select name from sqlite_master where type = 'table'")
        }
        self.strings = dict(self.rows("StringIds", ["id", "value"]))
        self.copy_names = dict(self.rows("ENUM_CUDA_MEMCPY_OPER", ["id", "label"]))

    def columns(self, table: str) -> set[str]:
        if table not in self.tables:
            return set()
        return {row[1] for row in self.database.execute(f'pragma table_info("{table}")')}

    def rows(self, table: str, wanted: list[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns; NULL for one that the table lacks, nothing if there is none."""
        there = self.columns(table)
        if not there:
            return
        said = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
        yield from self.database.execute(f'select {said} from "{table}"')

    def name(self, text: object) -> int:
        return self.names.setdefault(str(text), len(self.names))

    def lane(self, owner: int, one: int, other: int) -> int:
        return self.lanes.setdefault((owner, one, other), len(self.lanes))

    def add(self, kind: Kind, rows: Iterator[_Row]) -> None:
        """Take rows, so many at a time that memory holds."""
        while part := list(islice(rows, _ROWS)):
            start, end, name, lane, correlation, sizes, graph = zip(*part, strict=True)
            columns = (start, end, (kind,) * len(part), name, lane, correlation, graph)
            kinds = (np.int64, np.int64, np.int8, np.int32, np.int32, np.int64, np.bool_)
            for growing, column, one in zip(self.columns_taken, columns, kinds, strict=True):
                growing.add(np.array(column, one))
            known = enumerate(sizes, self.rows_taken)
            self.sizes |= {row: size for row, size in known if size >= 0}
            self.rows_taken += len(part)

    def timed(self, start: Any, end: Any) -> bool:
        """Whether both are times and in order; what is not is counted."""
        if not isinstance(start, int) or not isinstance(end, int):
            self.skipped["without a time or duration"] += 1
        elif not 0 <= start <= end < _LARGEST_NS:
            self.skipped["negative or impossible duration"] += 1
        else:
            return True
        return False

    def device(
        self, kind: Kind, table: str, named: tuple[str, ...], size: str, graph: str
    ) -> Iterator[_Row]:
        """Yield the work of devices that a table holds."""
        column = next((name for name in named if name in self.columns(table)), "")
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
        for row in self.rows(table, [*wanted, column, size, graph]):
            start, end, device, stream, correlation, process, name, amount, node = row
            if not self.timed(start, end):
                continue
            if kind == Kind.MEMCPY:
                text = f"Memcpy {self.copy_names.get(name, f'kind {name}')}"
            elif kind == Kind.MEMSET:
                text = "Memset"
            else:
                text = str(self.strings.get(name, "CUDA graph" if not column else name))
            yield (
                start,
                end,
                self.name(text),
                # Each process counts its devices anew, so two of them may be called 0.
                self.lane(_process(process), _number(device), _number(stream)),
                _call_number(process, correlation),
                _number(amount),
                _number(node) > 0,
            )

    def host(self, table: str, column: str) -> Iterator[_Row]:
        """Yield the calls and ranges of threads that a table holds."""
        wanted = ["start", "end", "globalTid", column, "correlationId", "text"]
        for start, end, thread, name, correlation, text in self.rows(table, wanted):
            if end is None and table == "NVTX_EVENTS":
                continue  # a mark has no duration
            if not self.timed(start, end):
                continue
            said = text if text is not None else self.strings.get(name, name)
            where = _number(thread)
            lane = self.lane(_process(thread), _process(thread), where & 0xFFFFFF)
            yield start, end, self.name(said), lane, _call_number(thread, correlation), -1, False

    def table(self) -> EventTable:
        names = [writable(name) for name in self.names]
        lanes = [Lane(one, other) for _, one, other in self.lanes]
        return EventTable.of_columns(names, lanes, self.columns_taken, self.sizes, {})

    def owners(self, table: EventTable) -> Ints:
        """Return the process of each row."""
        owners: Ints = np.array([owner for owner, _, _ in self.lanes], np.int64)
        return owners[np.asarray(table.lane)]


def _process(owner: Any) -> int:
    """Return the process in a global id of a process or thread: bits 24 to 47; -1 if none."""
    found = _number(owner)
    return found >> 24 & 0xFFFFFF if found >= 0 else -1


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST_NS else -1


def _call_number(owner: Any, correlation: Any) -> int:
    """Return one number for a process and its correlation number, -1 if there is none.

    Correlation numbers are counted for each process; bits 24 to 47 of a global id are the process.
    """
    if not isinstance(correlation, int) or not 0 <= correlation < 1 << 32:
        return -1
    return (_number(owner) >> 24 & 0xFFFFFF) << 32 | correlation


def read_nsys(path: Path) -> list[Trace]:
    """Return the events of one export, of each process that works on a device by themselves.

    Where several do, each is a rank, in the order of their numbers; threads of other processes
    belong to none of them and are left out. Where one or none does, all is one trace.

    Raises:
        OSError: the file cannot be read.
        ParseError: it is no such export, is damaged, or has no event with a duration.
    """
    size = path.stat().st_size
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            reader = _Reader(database)
            for kind, name, named, amount, graph in _DEVICE:
                reader.add(kind, reader.device(kind, name, named, amount, graph))
            for kind, name, column in _HOST:
                reader.add(kind, reader.host(name, column))
            base = _first(reader.rows("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]))
            gpus = {
                one: str(name or "")
                for one, name in reader.rows("TARGET_INFO_GPU", ["id", "name"])
                if isinstance(one, int)
            }
            host = _first(
                (value,)
                for name, value in reader.rows("TARGET_INFO_SYSTEM_ENV", ["name", "value"])
                if name == "Hostname"
            )
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise ParseError(
            f"the database cannot be read: {error}",
            str(path),
            "export the report again: nsys export --type sqlite",
        ) from error
    table = reader.table()
    if not len(table):
        raise ParseError(
            "the database holds no event with a duration",
            str(path),
            "name an export of nsys with CUDA or NVTX events (--trace cuda,nvtx)",
        )
    owners = reader.owners(table)
    workers = np.unique(owners[table.device])
    parts = [table]
    if len(workers) > 1:
        parts = [table.take(owners == one) for one in workers]
    return [_trace(path, part, reader.skipped.copy(), host, gpus, base, size) for part in parts]


def _trace(
    path: Path,
    table: EventTable,
    skipped: Counter[str],
    host: Any,
    gpus: dict[int, str],
    base: Any,
    size: int,
) -> Trace:
    return Trace(
        path=path,
        format="nsys",
        events=keep_sane(table, skipped),
        rank=None,
        world_size=None,
        host=writable(str(host)) if host else None,
        devices=gpus,
        base_ns=base if isinstance(base, int) else None,
        skipped=skipped,
        lost="",
        bytes_read=size,
    )


def _first(rows: Iterator[tuple[Any, ...]]) -> Any:
    return next(rows, (None,))[0]
