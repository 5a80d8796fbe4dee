"""The one event table that every profile becomes: columns of numpy arrays, a row an interval."""

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
    call that launched it, -1 if there is none. `size` is the bytes of a copy, -1 if not known.
    `in_graph` says that the file itself names a graph node.
    """

    names: list[str]
    lanes: list[Lane]
    start: Ints
    end: Ints
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    correlation: Ints
    size: Ints
    in_graph: Mask
    collectives: dict[int, Collective] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def device(self) -> Mask:
        """Rows that ran on a device: kernels, copies, fills."""
        return self.kind <= Kind.MEMSET

    def take(self, rows: Mask) -> "EventTable":
        """Return the chosen rows, in their order."""
        new_index = np.cumsum(rows) - 1
        return EventTable(
            self.names,
            self.lanes,
            self.start[rows],
            self.end[rows],
            self.kind[rows],
            self.name[rows],
            self.lane[rows],
            self.correlation[rows],
            self.size[rows],
            self.in_graph[rows],
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
