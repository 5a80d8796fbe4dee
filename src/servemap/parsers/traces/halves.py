"""Intervals whose begin and end are two events (`ph` B and E of the Trace Event Format).

On each thread an end belongs to the last begin that has none yet.
"""

from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import msgspec

_LARGEST_US = Decimal(1 << 53)

_Lane = tuple[int | str, int | str]


class Begin(msgspec.Struct, gc=False, tag="B", tag_field="ph"):
    """The begin of an interval; `ts` in us with all its digits."""

    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: Decimal | None = None
    args: Any = None


class End(msgspec.Struct, gc=False, tag="E", tag_field="ph"):
    """The end of an interval."""

    pid: int | str = -1
    tid: int | str = -1
    ts: Decimal | None = None


_ENCODE = msgspec.json.Encoder(decimal_format="number")


class Halves:
    """Begins and ends as they come; `skipped` counts those that have no other half."""

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self._open: dict[_Lane, list[Begin]] = defaultdict(list)
        self._whole: list[dict[str, Any]] = []

    def add(self, half: Begin | End) -> None:
        """Take one half; halves of one thread come in order of time."""
        if half.ts is None or not abs(half.ts) < _LARGEST_US:
            self.skipped["a begin or end without a possible time"] += 1
        elif isinstance(half, Begin):
            self._open[half.pid, half.tid].append(half)
        elif begun := self._open[half.pid, half.tid]:
            self._whole.append(_interval(begun.pop(), half.ts))
        else:
            self.skipped["an end without a begin"] += 1

    def take(self) -> bytes:
        """Return the intervals that became whole since the last call, as a JSON array, or b""."""
        text = _ENCODE.encode(self._whole) if self._whole else b""
        self._whole = []
        return text

    def close(self) -> None:
        """Count what has begun and never ended."""
        if left := sum(map(len, self._open.values())):
            self.skipped["a begin without an end"] += left
        self._open.clear()


def _interval(begin: Begin, end: Decimal) -> dict[str, Any]:
    args = begin.args if isinstance(begin.args, dict) else {}
    assert begin.ts is not None
    return {
        "ph": "X", "cat": begin.cat, "name": begin.name, "pid": begin.pid, "tid": begin.tid,
        "ts": begin.ts, "dur": end - begin.ts, "args": args,
    }  # fmt: skip
