"""From the clock of a node to the head's.

Raw times are of the wall clock of the node that took them. Each process keeps one instant on the
wall and on the monotonic clock (`collect.ready`, `client.json`), so a wall clock that is set while
a case runs misplaces nothing: times are rebuilt from that instant and the monotonic clock. What
remains is the offset to the head, measured at the start and at the end of the case. It is the one
of the start; only where it grew by more than both measurements may be wrong by, and no step
explains it, the two clocks run at different rates, and the growth is spread over the case.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from servemap.model.attempts import read_json
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.values import integer, mapping, moment

if TYPE_CHECKING:  # measuring has no use for numpy, which takes long to import
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LEAST_STEP_NS = 1_000_000
"""A smaller difference between two anchors of one node is how finely they can be read."""


class Reading(NamedTuple):
    """A clock minus the head's, what that may be wrong by, and when (head's clock); ns."""

    offset_ns: int
    error_ns: int
    at_ns: int


class NodeClock(NamedTuple):
    """What turns a node's epoch ns into the head's; see `clock_record` for the fields."""

    offset_ns: int = 0
    error_ns: int = 0
    rate_ns: int = 0
    since_ns: int = 0
    until_ns: int = 0

    def to_head(self, t_ns: int) -> int:
        """Return the head's epoch ns at a moment of the node's clock."""
        moved = t_ns - self.offset_ns
        if not self.rate_ns or self.until_ns <= self.since_ns:
            return moved
        span = self.until_ns - self.since_ns
        passed = min(max(moved - self.since_ns, 0), span)
        return moved - self.rate_ns * passed // span

    def all_to_head(self, t_ns: "Ints") -> "Ints":
        """Return the same of an array of moments, to within a nanosecond."""
        moved = t_ns - self.offset_ns
        if not self.rate_ns or self.until_ns <= self.since_ns:
            return moved
        span = self.until_ns - self.since_ns
        passed = (moved - self.since_ns).clip(0, span)
        # The product of both may exceed 64 bits; a drift is far below the 2^53 ns of a float.
        gained: Ints = (self.rate_ns * (passed / span) // 1).astype("int64")
        return moved - gained


class LoadTimes(NamedTuple):
    """Puts times of the load client on the head's clock, one (called) or all of an array."""

    clock: NodeClock
    shift_ns: int

    def __call__(self, t_ns: int) -> int:
        """Return the head's epoch ns at a moment of the client."""
        return self.clock.to_head(t_ns + self.shift_ns)

    def all_to_head(self, t_ns: "Ints") -> "Ints":
        """Return the head's epoch ns of each moment, to within a nanosecond."""
        return self.clock.all_to_head(t_ns + self.shift_ns)


HEAD_TIMES = LoadTimes(NodeClock(), 0)
"""Times that are on the head's clock already."""


def clock_record(
    start: Reading, end: Reading, set_ns: int, head_set_ns: int, head: str
) -> dict[str, Any]:
    """Return meta.json's record of a node's clock, against that of `reference`, the head.

    `offset_ns` and `error_ns` are of the start, `drift_ns` is end minus start and may be wrong by
    `drift_error_ns`; `step_ns` is the part of it that comes from clocks that were set meanwhile,
    `set_ns` how far the node's own was. `rate_ns` is the growth that is spread from `since_ns` to
    `until_ns`, 0 where there is none to speak of.
    """
    drift_ns = end.offset_ns - start.offset_ns
    step_ns = set_ns - head_set_ns
    drift_error_ns = start.error_ns + end.error_ns
    grown_ns = drift_ns - step_ns
    rate_ns = grown_ns if abs(grown_ns) > drift_error_ns else 0
    return {
        "reference": head,
        "offset_ns": start.offset_ns,
        "error_ns": max(start.error_ns, end.error_ns) if rate_ns else start.error_ns,
        "drift_ns": drift_ns,
        "drift_error_ns": drift_error_ns,
        "step_ns": step_ns,
        "set_ns": set_ns,
        "rate_ns": rate_ns,
        "since_ns": start.at_ns,
        "until_ns": end.at_ns,
    }


def node_clock(record: Any) -> NodeClock:
    """Return the clock that a record of meta.json describes; the head's where there is none."""
    fields = mapping(record)
    return NodeClock(*(integer(fields.get(name)) or 0 for name in NodeClock._fields))


def step_ns(folder: Path) -> int:
    """Return how far a node's clock was set while its collectors ran (their folder's record)."""
    ended = read_json(folder / "collectors.json") or {}
    found = integer(mapping(ended.get("clock")).get("step_ns")) or 0
    return found if abs(found) >= LEAST_STEP_NS else 0


def epoch_of(folder: Path) -> int | None:
    """Return what turns a node's monotonic ns into its epoch ns, as when collectors began."""
    ready = read_json(folder / "collect.ready") or {}
    return _epoch(ready.get("t_ns"), ready.get("mono_ns"))


def rebuilt(lines: Iterable[JsonLine], epoch_ns: int | None) -> Iterable[JsonLine]:
    """Return raw lines with their `t_ns` made anew from the monotonic clock.

    Lines without `mono_ns`, and all where no anchor is known, stay as they are.
    """
    return lines if epoch_ns is None else (_rebuilt(line, epoch_ns) for line in lines)


def _rebuilt(line: JsonLine, epoch_ns: int) -> JsonLine:
    mono_ns = moment(line.value.get("mono_ns"))
    if mono_ns is None or moment(line.value.get("t_ns")) is None:
        return line
    return JsonLine(line.line, {**line.value, "t_ns": epoch_ns + mono_ns})


def load_times(raw: Path, client: dict[str, Any], node: str, clock: dict[str, Any]) -> LoadTimes:
    """Return what puts the load client's times on the head's clock.

    Args:
        raw: the attempt's raw folder.
        client: client.json.
        node: the node that the client ran on.
        clock: meta.json's `clock`.
    """
    anchor = mapping(client.get("clock"))
    own = _epoch(anchor.get("wall_ns"), anchor.get("mono_ns"))
    first = epoch_of(raw / "telemetry" / node)
    shift_ns = 0 if own is None or first is None else first - own
    if abs(shift_ns) < LEAST_STEP_NS:
        shift_ns = 0
    return LoadTimes(node_clock(clock.get(node)), shift_ns)


def _epoch(wall: Any, mono: Any) -> int | None:
    wall_ns, mono_ns = integer(wall), integer(mono)
    return None if wall_ns is None or mono_ns is None else wall_ns - mono_ns
