"""Kineto's JSON traces (PyTorch profiler; vLLM and SGLang write them) to the event table.

Categories and arguments are those of Kineto's `output_json.cpp`. Times in a file are us since
`baseTimeNanoseconds`, or since the epoch where that is absent; they are kept as whole ns.
"""

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from servemap.model.errors import ParseError
from servemap.parsers.traces.event_types import Event, interval_decoder
from servemap.parsers.traces.json_events import Batch, EventReader
from servemap.parsers.traces.sanity import keep_sane, refuse_mixed
from servemap.parsers.traces.stream import TextPieces
from servemap.parsers.traces.table import (
    COLUMN_TYPES,
    Collective,
    EventTable,
    GrowingColumn,
    Ints,
    Kind,
    Lane,
    Trace,
    writable,
)

KINDS = {
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "cpu_op": Kind.OPERATOR,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "python_function": Kind.PYTHON,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
}

_EXACT_US = float(1 << 43)
"""A float of us holds whole ns below this: its last bit is then at most 2^-10 us."""

_EPOCH_NS = 1_000_000_000_000_000_000
"""Times above this (the year 2001) are since the epoch."""

_MOST_IN_16_BITS = 32_000
"""Indices stay clear of the end of their type, since they are also counted down from -2."""

_LARGEST_US = (1 << 63) // 1000 - 1


class _Index(dict[Any, int]):
    """Numbers keys in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = index = len(self)
        return index


class _ExactEvent(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    ts: Decimal | None = None
    dur: Decimal | None = None


_DECODE_EXACT = interval_decoder(_ExactEvent)


def _whole_ns(us: np.ndarray[Any, Any]) -> Ints:
    """Return us as ns, rounded to the nearest; exact for whole numbers and below `_EXACT_US`."""
    whole: Ints = np.floor(us).astype(np.int64)
    if us.dtype.kind == "f":
        return whole * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    return whole * 1000


def _exact_ns(text: bytes, count: int) -> Ints:
    """Return the starts of a text's intervals from their decimal digits."""
    starts = [
        int((one.ts * 1000).to_integral_value())
        for one in _DECODE_EXACT.decode(text)
        if isinstance(one, _ExactEvent) and one.ts is not None and one.dur is not None
    ]
    return _integers(starts[:count]).astype(np.int64)


class _Columns:
    """Batches of events, turned into columns as they come."""

    def __init__(self) -> None:
        self.names = _Index()
        self.lanes = _Index()
        self.skipped: Counter[str] = Counter()
        self._columns = [GrowingColumn(kind) for kind in COLUMN_TYPES]
        self._collectives: dict[int, Collective] = {}
        self._sizes: dict[int, int] = {}
        self._rows = 0

    def add(self, batch: Batch) -> None:
        rows = batch.events
        if any(event.ts is None or event.dur is None for event in rows):
            rows = [event for event in rows if event.ts is not None and event.dur is not None]
            self.skipped["without a time or duration"] += len(batch.events) - len(rows)
        if not rows:
            return
        start, length = self._times(batch, rows)
        fits = length >= 0
        if not fits.all():
            self.skipped["negative or impossible duration"] += int((~fits).sum())
            rows = [event for event, good in zip(rows, fits, strict=True) if good]
            start, length = start[fits], length[fits]
        kinds = np.array([KINDS.get(event.cat, Kind.OTHER) for event in rows], np.int8)
        in_graph = np.zeros(len(rows), np.bool_)
        lanes = [self.lanes[event.pid, event.tid] for event in rows]
        for row in np.flatnonzero(kinds <= Kind.MEMSET).tolist():
            event, args = rows[row], rows[row].args
            process = event.pid if args.device is None else args.device
            thread = event.tid if args.stream is None else args.stream
            if type(process) is not int or type(thread) is not int:
                process, thread = _key(process), _key(thread)
            lanes[row] = self.lanes[process, thread]
            if args.graph is not None:
                in_graph[row] = _count(args.graph) > 0
            if args.bytes is not None and (size := _count(args.bytes)) >= 0:
                self._sizes[self._rows + row] = size
            if args.collective is not None:
                self._collectives[self._rows + row] = Collective(
                    writable(str(args.collective)),
                    None if args.group is None else f"{args.group} {args.ranks or ''}".strip(),
                    None if (count := _count(args.elements)) < 0 else count,
                )
        self._rows += len(rows)
        columns: tuple[NDArray[Any], ...] = (
            start,
            start + length,
            kinds,
            _indices([self.names[event.name] for event in rows], len(self.names)),
            _indices(lanes, len(self.lanes)),
            _integers([event.args.correlation for event in rows]),
            in_graph,
        )
        for growing, column in zip(self._columns, columns, strict=True):
            growing.add(column)

    def _times(self, batch: Batch, rows: list[Event]) -> tuple[Ints, Ints]:
        """Return starts and lengths in ns; a length of -1 where the numbers are impossible."""
        start = np.array([event.ts for event in rows])
        length = np.array([event.dur for event in rows])
        if start.dtype.kind not in "iuf" or length.dtype.kind not in "iuf":
            start, length = start.astype(np.float64), length.astype(np.float64)
        good = (np.abs(start) < _LARGEST_US) & (length >= 0) & (length < _LARGEST_US)
        good &= np.abs(start) + length < _LARGEST_US
        if start.dtype.kind == "f":
            large = good & (np.abs(start) >= _EXACT_US)
            if large.any():
                return (
                    np.where(good, _exact_ns(batch.text, len(rows)), 0),
                    np.where(good, _whole_ns(np.where(good, length, 0)), -1),
                )
        return (
            _whole_ns(np.where(good, start, 0)),
            np.where(good, _whole_ns(np.where(good, length, 0)), -1),
        )

    def table(self) -> EventTable:
        """Return what was added; nothing may be added after that."""
        lanes = [Lane(_key(one), _key(other)) for one, other in self.lanes]
        names = [writable(name) for name in self.names]
        return EventTable.of_columns(names, lanes, self._columns, self._sizes, self._collectives)


def _key(value: Any) -> int | str:
    return value if isinstance(value, int) else writable(str(value))


def _count(value: Any) -> int:
    """Return a whole number that may be written as text; -1 if it is none."""
    if isinstance(value, int | float | str):
        try:
            number = int(value)
        except (ValueError, OverflowError):
            return -1
        return number if 0 <= number < 1 << 62 else -1
    return -1


def _indices(values: list[int], below: int) -> NDArray[np.integer[Any]]:
    return np.array(values, np.int16 if below <= _MOST_IN_16_BITS else np.int32)


def _integers(values: list[int]) -> NDArray[np.integer[Any]]:
    """Return whole numbers, -1 for such as are too large; in 32 bits where they fit."""
    try:
        found = np.array(values, np.int64)
    except OverflowError:
        found = np.array([value if abs(value) < 1 << 62 else -1 for value in values], np.int64)
    return found.astype(np.int32) if len(found) and abs(found).max() < 1 << 31 else found


def read_kineto(path: Path) -> Trace:
    """Return the events of one file; of a damaged one, what is whole.

    Raises:
        OSError: the file cannot be read.
        ParseError: it is no trace, or holds no event that has a duration.
    """
    pieces = TextPieces(path)
    reader = EventReader(pieces)
    columns = _Columns()
    for batch in reader:
        columns.add(batch)
    skipped = reader.skipped + columns.skipped
    table = columns.table()
    if not reader.found or not len(table):
        raise ParseError(
            _why_nothing(pieces, reader, skipped),
            str(path),
            "name a Kineto trace (.json, .json.gz, .json.zst) or an nsys export (.sqlite)",
        )
    refuse_mixed(table, path)
    table = keep_sane(table, skipped)
    head = reader.head
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    host = head.get("host_name")
    rank, world_size = _place(_whole(info.get("rank")), _whole(info.get("world_size")))
    return Trace(
        path=path,
        format="kineto",
        events=table,
        rank=rank,
        world_size=world_size,
        host=writable(host) if isinstance(host, str) else None,
        devices=_devices(head.get("deviceProperties")),
        base_ns=_base(head.get("baseTimeNanoseconds"), table),
        skipped=skipped,
        lost=_lost(pieces, reader),
        bytes_read=pieces.bytes_read,
    )


def _why_nothing(pieces: TextPieces, reader: EventReader, skipped: Counter[str]) -> str:
    if pieces.bytes_read == 0:
        return f"the file is empty{f': {pieces.lost}' if pieces.lost else ''}"
    if not reader.found:
        return "the file is no trace: it has no traceEvents"
    reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common(3))
    return "the trace holds no event with a duration" + (f" ({reasons})" if reasons else "")


def _lost(pieces: TextPieces, reader: EventReader) -> str:
    if reader.whole and not pieces.lost:
        return "what stands behind the end of the trace was left out" if reader.followed else ""
    said = [pieces.lost] if pieces.lost else []
    if not reader.whole:
        said.append("the list of events does not end")
    if reader.lost_bytes:
        said.append(f"{reader.lost_bytes} bytes of a last event were left out")
    said.append(f"{pieces.bytes_read} bytes were read; what is missing after them is not known")
    return "; ".join(said)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _place(rank: int | None, world_size: int | None) -> tuple[int | None, int | None]:
    """Return a rank and how many there are, each None where the two cannot be so."""
    if world_size is not None and world_size < 1:
        return None, None
    if rank is not None and not 0 <= rank < (rank + 1 if world_size is None else world_size):
        return None, world_size
    return rank, world_size


def _base(value: Any, table: EventTable) -> int | None:
    """Return what the file says; 0 for a file without it whose times are epoch times."""
    if (base := _whole(value)) is not None:
        return base
    return 0 if len(table) and int(table.start[0]) > _EPOCH_NS else None


def _devices(value: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for one in value if isinstance(value, list) else []:
        if isinstance(one, dict) and isinstance(one.get("id"), int):
            found[one["id"]] = writable(str(one.get("name") or ""))
    return found
