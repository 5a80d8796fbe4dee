"""Requests and the streams they come from: what is prepared, what is in flight, what is due."""

from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Tuple

from .load_http import Response
from .load_spec import Stream

AHEAD_S = 0.5
"""The connection of a request with a set time is made this long before it is due."""

Make = Callable[[int], Tuple[str, bytes]]


class Call:
    """One request: prepared bytes, then the times (monotonic ns) and bytes of what happened.

    `outcome`: complete, cut, refused, timeout, protocol or aborted; `detail` says it for people.
    `timed`: `scheduled_ns` is a time of the load's plan, not the end of the request before.
    """

    __slots__ = (
        "attempts",
        "connected_ns",
        "detail",
        "ended_ns",
        "id",
        "index",
        "isl",
        "lane",
        "osl",
        "outcome",
        "payload",
        "response",
        "scheduled_ns",
        "sent_ns",
        "timed",
    )

    def __init__(
        self, lane: "Lane", call_id: str, payload: bytes, scheduled_ns: int, index: int = 0
    ) -> None:
        self.lane = lane
        self.id = call_id
        self.index = index
        recorded = lane.stream.recorded
        self.isl = recorded[index].isl if recorded else lane.isl
        self.osl = recorded[index].osl if recorded else lane.stream.osl
        self.payload = payload
        self.scheduled_ns = scheduled_ns
        self.timed = not lane.closed
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
        self.closed = not stream.at_s
        self._heads, self._follows = _conversations(stream) if self.closed else (deque(), {})
        self.slots = min(stream.concurrency, len(self._heads) or stream.num_prompts)
        self.limit = stream.num_prompts
        # Requests of set times: due within the first moments, and soon with a connection made.
        self.early = sum(offset < AHEAD_S for offset in stream.at_s)
        self.expected = self.early
        self.issued = 0
        self.inflight = 0
        self._make = make
        self._made = 0
        self._ready: Dict[int, Tuple[str, bytes]] = {}
        self._good = 0

    def prepare(self) -> int:
        """Prepare one more request; returns its bytes."""
        made = self._make(self._made)
        self._ready[self._made] = made
        self._made += 1
        return len(made[1])

    def unprepared(self) -> int:
        """How many of the planned requests are not prepared yet."""
        return self.limit - self._made

    def wants_more(self, repeats: bool) -> bool:
        """Tell whether idle time should go into preparing this stream's next request."""
        short = len(self._ready) < self.slots
        more = repeats and self.closed and not self.stream.recorded
        return short and (self._made < self.limit or more)

    def has_next(self, before: Optional[Call]) -> bool:
        """Tell whether there is a request to send in the place of the one that ended."""
        if self.stream.recorded and self.closed:
            return bool(self._heads) or (before is not None and before.index in self._follows)
        return self.issued < self.limit

    def take(self, scheduled_ns: int, before: Optional[Call]) -> Call:
        """Hand out the next request: the next turn of `before`, or what comes next."""
        index = self.issued
        if self.stream.recorded and self.closed:
            turn = None if before is None else self._follows.get(before.index)
            index = self._heads.popleft() if turn is None else turn
        while index not in self._ready:
            self.prepare()
        call_id, payload = self._ready.pop(index)
        self.issued += 1
        self.inflight += 1
        call = Call(self, call_id, payload, scheduled_ns, index)
        call.timed = call.timed or (before is not None and self.pause_ns(before) > 0)
        return call

    def pause_ns(self, before: Call) -> int:
        """Return how long after the end of `before` the next turn of its conversation is due."""
        turn = self._follows.get(before.index)
        return 0 if turn is None else round(self.stream.recorded[turn].think_s * 1e9)

    def ended(self, good: bool) -> None:
        """Note that a request ended."""
        self.inflight -= 1
        self._good += good

    def extend(self) -> bool:
        """Plan one wave more, unless none of the last one succeeded."""
        if not self._good or self.stream.recorded:
            return False
        self._good = 0
        self.limit += self.stream.num_prompts
        return True


def _conversations(stream: Stream) -> Tuple[Deque[int], Dict[int, int]]:
    """Return the first turns in their order, and the turn that follows each: places in `recorded`.

    A request of no conversation is one of its own.
    """
    heads: Deque[int] = deque()
    follows: Dict[int, int] = {}
    last: Dict[str, int] = {}
    for index, request in enumerate(stream.recorded):
        name = request.conversation
        if name is not None and name in last:
            follows[last[name]] = index
        else:
            heads.append(index)
        if name is not None:
            last[name] = index
    return heads, follows


def prepare_all(lanes: List[Lane], budget: int) -> None:
    """Prepare requests before the clock starts, in the order of `lanes`, up to `budget` bytes."""
    for lane in lanes:
        while lane.unprepared() > 0 and budget > 0:
            budget -= lane.prepare()
