"""The events of a Chrome trace as they are decoded: what is looked at, and nothing else."""

from typing import Any, Union

import msgspec

from servemap.parsers.traces.halves import Begin, End


class EventArgs(msgspec.Struct, gc=False):
    """The arguments of an event that are looked at."""

    correlation: int = -1
    stream: Any = None
    device: Any = None
    bytes: Any = None
    graph: Any = msgspec.field(name="graph node id", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    elements: Any = msgspec.field(name="In msg nelems", default=None)


NO_ARGS = EventArgs()


class Event(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """One interval, as its file has it: `ts` and `dur` in us."""

    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float | None = None
    dur: int | float | None = None
    args: EventArgs = msgspec.field(default_factory=lambda: NO_ARGS)


_PHASES = "IiCbneSTpFstfPNODMVvRc"
"""What has no duration: decoded only to be passed over."""

_OTHERS = [
    msgspec.defstruct(f"_Phase{ord(phase)}", [], tag=phase, tag_field="ph", gc=False)
    for phase in _PHASES
]


def interval_decoder(interval: type[msgspec.Struct]) -> "msgspec.json.Decoder[list[Any]]":
    """Return a decoder of arrays of events, whose intervals (`ph` is X) become `interval`."""
    kinds = Union[(interval, Begin, End, *_OTHERS)]  # type: ignore[valid-type]
    return msgspec.json.Decoder(list[kinds])
