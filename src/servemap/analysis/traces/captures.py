"""Whether several trace files are the ranks of one capture."""

from typing import NamedTuple

from servemap.model.errors import ParseError
from servemap.parsers.traces.table import Trace

_APART_NS = 10_000_000_000
"""Clocks of two machines may differ by this; captures that lie further apart are two."""


class Source(NamedTuple):
    """Where and when a file was taken; `start_ns` and `end_ns` are None without a base of time."""

    path: str
    rank: int | None
    world_size: int | None
    start_ns: int | None
    end_ns: int | None


def source_of(trace: Trace) -> Source:
    """Return what tells a file's capture from another."""
    start = end = None
    if trace.base_ns is not None and len(trace.events):
        start = int(trace.events.start.min()) + trace.base_ns
        end = int(trace.events.end.max()) + trace.base_ns
    return Source(str(trace.path), trace.rank, trace.world_size, start, end)


def check_one_capture(sources: list[Source]) -> None:
    """Refuse files that cannot be of one capture.

    Raises:
        ParseError: a rank came twice, the numbers of ranks differ, or the times do not meet.
    """
    ranks: dict[int, Source] = {}
    for source in sources:
        if source.rank is None:
            continue
        other = ranks.setdefault(source.rank, source)
        if other is not source:
            raise _refused(f"both are rank {source.rank}", other, source)
        first = next(iter(ranks.values()))
        if source.world_size != first.world_size:
            sizes = f"one is of {first.world_size} ranks, the other of {source.world_size}"
            raise _refused(sizes, first, source)
    timed = [source for source in sources if source.start_ns is not None]
    for source in timed[1:]:
        apart = max(
            (source.start_ns or 0) - (timed[0].end_ns or 0),
            (timed[0].start_ns or 0) - (source.end_ns or 0),
        )
        if apart > _APART_NS:
            raise _refused(f"they lie {apart / 1e9:.1f} s apart", timed[0], source)


def _refused(why: str, one: Source, other: Source) -> ParseError:
    return ParseError(
        f"the files are not of one capture: {why}",
        f"{one.path} and {other.path}",
        "give the ranks of one capture, one file each; look at other captures by themselves",
    )
