"""Requests and the streams they come from: what is prepared, what is in flight, what is due."""

from collections import deque
from typing import Callable, Deque, List, Optional, Tuple

from .load_http import Response
from .load_spec import Stream

AHEAD_S = 0.5
"""The connection of a request with a set time is made this long before it is due."""

Make = Callable[[int], Tuple[str, bytes]]


class Call:
    """One request: prepared bytes, then the times (monotonic ns) and bytes of what happened.

    `outcome`: complete, cut, refused, timeout, protocol or aborted; `detail` says it for people.
    """

    __slots__ = (
        "attempts",
        "connected_ns",
        "detail",
        "ended_ns",
        "id",
        "lane",
        "outcome",
        "payload",
        "response",
        "scheduled_ns",
        "sent_ns",
    )

    def __init__(self, lane: "Lane", call_id: str, payload: bytes, scheduled_ns: int) -> None:
        self.lane = lane
        self.id = call_id
        self.payload = payload
        self.scheduled_ns = scheduled_ns
        self.connected_ns: Optional[int] = None
        self.sent_ns: Optional[int] = None
        self.ended_ns = 0
        self.attempts = 0
        self.outcome = ""
        self.detail = ""
        self.response = Response()


class Lane:
    """A stream at run time: its prepared requests and how many it may still send.

    `make(index)` gives the id and the bytes of the stream's request number `index`; `isl` is how
    many tokens its prompts should have.
    """

    def __init__(self, stream: Stream, make: Make) -> None:
        self.stream = stream
        self.isl = stream.isl
        self.closed = stream.kind == "closed"
        self.slots = min(stream.concurrency, stream.num_prompts)
        self.limit = stream.num_prompts
        # Requests of set times: due within the first moments, and soon with a connection made.
        self.early = sum(offset < AHEAD_S for offset in stream.at_s)
        self.expected = self.early
        self.issued = 0
        self.inflight = 0
        self._make = make
        self._made = 0
        self._ready: Deque[Tuple[str, bytes]] = deque()
        self._good = 0

    def prepare(self) -> int:
        """Prepare one more request; returns its bytes."""
        made = self._make(self._made)
        self._made += 1
        self._ready.append(made)
        return len(made[1])

    def unprepared(self) -> int:
        """How many of the planned requests are not prepared yet."""
        return self.limit - self._made

    def wants_more(self, repeats: bool) -> bool:
        """Tell whether idle time should go into preparing this stream's next request."""
        short = len(self._ready) < self.slots
        return short and (self._made < self.limit or (repeats and self.closed))

    def take(self, scheduled_ns: int) -> Call:
        """Hand out the next request."""
        if not self._ready:
            self.prepare()
        call_id, payload = self._ready.popleft()
        self.issued += 1
        self.inflight += 1
        return Call(self, call_id, payload, scheduled_ns)

    def ended(self, good: bool) -> None:
        """Note that a request ended."""
        self.inflight -= 1
        self._good += good

    def extend(self) -> bool:
        """Plan one wave more, unless none of the last one succeeded."""
        if not self._good:
            return False
        self._good = 0
        self.limit += self.stream.num_prompts
        return True


def prepare_all(lanes: List[Lane], budget: int) -> None:
    """Prepare requests before the clock starts, in the order of `lanes`, up to `budget` bytes."""
    for lane in lanes:
        while lane.unprepared() > 0 and budget > 0:
            budget -= lane.prepare()
