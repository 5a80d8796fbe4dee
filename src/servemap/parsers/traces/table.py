"""The one event table that every profile becomes: columns of numpy arrays, a row an interval."""

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

COLUMN_TYPES = (np.int64, np.int64, np.int8, np.int16, np.int16, np.int32, np.bool_)
"""Types of start, end, kind, name, lane, correlation, in_graph where there is no row."""


def writable(text: str) -> str:
    """Return a text that can be written as UTF-8; half characters become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Kind(IntEnum):
    """What an interval is; those up to MEMSET ran on a device, all others on the host."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    OPERATOR = 3
    RUNTIME = 4
    PYTHON = 5
    ANNOTATION = 6
    DEVICE_ANNOTATION = 7
    OTHER = 8


class GrowingColumn:
    """A column that parts are added to; it grows in place, so nothing is held twice."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._array: NDArray[Any] = np.empty(0, kind)
        self._length = 0

    def add(self, part: NDArray[Any]) -> None:
        """Append; a part of a wider type makes the column wider."""
        if part.dtype.itemsize > self._array.dtype.itemsize:
            self._array = self._array.astype(part.dtype)
        end = self._length + len(part)
        if end > len(self._array):
            self._array.resize(end + end // 4 + 1024, refcheck=False)
        self._array[self._length : end] = part
        self._length = end

    def whole(self) -> NDArray[Any]:
        """Return the column; nothing may be added after that."""
        self._array.resize(self._length, refcheck=False)
        return self._array


class Lane(NamedTuple):
    """The process and thread, or for device work the device and stream, as the file names them."""

    process: int | str
    thread: int | str


class Collective(NamedTuple):
    """What a communication kernel says about itself; None where it does not."""

    name: str | None
    group: str | None
    elements: int | None


@dataclass(frozen=True)
class EventTable:
    """Columns of equal length; all times are ns on the clock of the file.

    `name` and `lane` are indices into `names` and `lanes`. `correlation` joins device work to the
    call that launched it, -1 if there is none. `in_graph` says that the file itself names a graph
    node. `sizes` has the bytes of copies by row, `collectives` what some rows say of themselves.
    """

    names: list[str]
    lanes: list[Lane]
    start: Ints
    end: Ints
    kind: NDArray[np.int8]
    name: NDArray[np.integer[Any]]
    lane: NDArray[np.integer[Any]]
    correlation: NDArray[np.integer[Any]]
    in_graph: Mask
    sizes: dict[int, int] = field(default_factory=dict)
    collectives: dict[int, Collective] = field(default_factory=dict)

    @classmethod
    def of_columns(
        cls,
        names: list[str],
        lanes: list[Lane],
        columns: list[GrowingColumn],
        sizes: dict[int, int],
        collectives: dict[int, Collective],
    ) -> "EventTable":
        """Return the table of finished columns, which stand in the order of `COLUMN_TYPES`."""
        start, end, kind, name, lane, correlation, in_graph = (one.whole() for one in columns)
        return cls(
            names, lanes, start, end, kind, name, lane, correlation, in_graph, sizes, collectives
        )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def device(self) -> Mask:
        """Rows that ran on a device: kernels, copies, fills."""
        return self.kind <= Kind.MEMSET

    def take(self, rows: Mask) -> "EventTable":
        """Return the chosen rows, in their order."""
        new_index = np.cumsum(rows) - 1 if self.sizes or self.collectives else rows
        return EventTable(
            self.names,
            self.lanes,
            self.start[rows],
            self.end[rows],
            self.kind[rows],
            self.name[rows],
            self.lane[rows],
            self.correlation[rows],
            self.in_graph[rows],
            {int(new_index[row]): size for row, size in self.sizes.items() if rows[row]},
            {int(new_index[row]): one for row, one in self.collectives.items() if rows[row]},
        )


TraceFormat = Literal["kineto", "nsys"]


@dataclass(frozen=True)
class Trace:
    """One file: its events and what it says about where they come from.

    `base_ns` is what must be added to the times of the table to get epoch ns, None if the file
    does not say. `skipped` counts the events that were left out, by reason. `lost` says in words
    how much of the file could not be read; empty if it is whole.
    """

    path: Path
    format: TraceFormat
    events: EventTable
    rank: int | None
    world_size: int | None
    host: str | None
    devices: dict[int, str]
    base_ns: int | None
    skipped: Counter[str]
    lost: str
    bytes_read: int
