"""Replays: what a trace lets a server find in its cache, and how late turns came after pauses.

Two prompts share what the load client makes alike (`onnode/load_prompts.py`): the leading blocks
with the same ids, or, without blocks, the beginning of all prompts of a conversation. A server can
have what a prompt shares with those that were sent before it (`most`), and has it for certain where
their prefill had ended when it was sent (`least`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from servemap.analysis.cached import cached_share
from servemap.analysis.requests import Request
from servemap.analysis.stats import distribution
from servemap.parsers.values import integer, mapping, number, sequence, text

CACHE_BLOCK = 16
"""Tokens that an engine keeps at least together: vLLM's usual block. Others keep single tokens."""


class Reuse(NamedTuple):
    """Share of the input that a server can have had before, at least and at most."""

    least: float
    most: float


class Prompts:
    """Prompts that were sent before: how much of the next one is like them."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._conversations: dict[str, int] = {}
        # A prompt's leading blocks are a path from node 0; of each node, the tokens seen of it.
        self._nodes: dict[tuple[int, int], int] = {}
        self._seen: dict[int, int] = {}

    def shared(self, recorded: dict[str, Any]) -> int:
        """Return the leading tokens of a prompt that an earlier one has; never the last token.

        The last one is always computed, since the first of the answer comes from it.
        """
        isl = integer(recorded.get("isl")) or 0
        return min(self._shared(recorded, isl), max(isl - 1, 0))

    def _shared(self, recorded: dict[str, Any], isl: int) -> int:
        blocks = sequence(recorded.get("blocks"))
        if not blocks:
            return min(isl, self._conversations.get(text(recorded.get("conversation")) or "", 0))
        node = total = 0
        for block in blocks:
            node = self._nodes.get((node, block), -1)
            seen = min(self._seen.get(node, 0), isl - total)
            total += seen
            if seen < self._block_tokens:
                break
        return total

    def add(self, recorded: dict[str, Any]) -> None:
        """Take a prompt in."""
        isl = integer(recorded.get("isl")) or 0
        blocks = sequence(recorded.get("blocks"))
        name = text(recorded.get("conversation"))
        if not blocks and name is not None:
            self._conversations[name] = max(isl, self._conversations.get(name, 0))
        node = 0
        for block in blocks:
            if isl <= 0:
                break
            node = self._nodes.setdefault((node, block), len(self._nodes) + 1)
            self._seen[node] = max(self._seen.get(node, 0), min(isl, self._block_tokens))
            isl -= self._block_tokens


def replay_stream(load: dict[str, Any]) -> dict[str, Any]:
    """Return the stream of a load (load.json) that replays a trace; {} where there is none."""
    for segment in sequence(load.get("segments")):
        for item in sequence(mapping(segment).get("streams")):
            stream = mapping(item)
            if stream.get("kind") == "replay":
                return stream
    return {}


def shares(stream: dict[str, Any]) -> bool:
    """Return whether a trace says of any prompt that it is like others."""
    return any(
        mapping(row).get("conversation") is not None or mapping(row).get("blocks")
        for row in sequence(stream.get("requests"))
    )


def in_order(stream: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a stream's recorded requests in the order of their numbers, as the client has them."""
    rows = [mapping(row) for row in sequence(stream.get("requests"))]
    if stream.get("concurrency") is None:
        rows.sort(key=lambda row: _or(number(row.get("at_s")), -1.0))
    return rows


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def matched(
    stream: dict[str, Any], requests: Iterable[Request]
) -> list[tuple[Request, dict[str, Any]]]:
    """Return the measured requests of a replay, each with the recorded one that it repeats."""
    rows = in_order(stream)
    pairs = []
    for request in requests:
        place = request.id.rpartition("-")[2]
        if request.stream == stream.get("name") and place.isdigit() and 0 < int(place) <= len(rows):
            pairs.append((request, rows[int(place) - 1]))
    return pairs


def reusable(stream: dict[str, Any], requests: Iterable[Request]) -> Reuse | None:
    """Return what a server can have had of the prompts that succeeded; None where none did.

    Args:
        stream: a stream of load.json that replays a trace.
        requests: the measured requests; their times say what came before what.
    """
    block_tokens = integer(stream.get("block_tokens")) or CACHE_BLOCK
    certain, possible = Prompts(block_tokens), Prompts(block_tokens)
    events: list[tuple[int, int, Request, dict[str, Any]]] = []
    for request, recorded in matched(stream, requests):
        if request.sent_ns is not None:
            events.append((request.sent_ns, 1, request, recorded))
            if request.first_ns is not None:
                events.append((request.first_ns, 0, request, recorded))
    events.sort(key=lambda event: event[:2])
    least = most = total = 0
    for _, sent, request, recorded in events:
        if not sent:
            certain.add(recorded)
            continue
        if request.status == "ok":
            least += certain.shared(recorded) // CACHE_BLOCK * CACHE_BLOCK
            most += possible.shared(recorded)
            total += integer(recorded.get("isl")) or 0
        possible.add(recorded)
    return Reuse(least / total, most / total) if total else None


def planned_reuse(rows: Sequence[dict[str, Any]], block_tokens: int) -> float:
    """Return the share of a trace's input that prompts before it have, in the order of `rows`."""
    prompts = Prompts(block_tokens)
    shared = total = 0
    for row in rows:
        shared += prompts.shared(row)
        total += row["isl"]
        prompts.add(row)
    return shared / total if total else 0.0


def paused(load: dict[str, Any], requests: Iterable[Request]) -> list[tuple[Request, float]]:
    """Return the requests of a replay that waited for a pause, each with its planned seconds."""
    pauses = [
        (request, number(recorded.get("think_s")))
        for request, recorded in matched(replay_stream(load), requests)
    ]
    return [(request, pause) for request, pause in pauses if pause]


def lag_s(request: Request) -> float | None:
    """Return how long after it was due a request was sent, in seconds."""
    if request.sent_ns is None or request.scheduled_ns is None:
        return None
    return (request.sent_ns - request.scheduled_ns) / 1e9


def replay_figures(load: dict[str, Any], requests: Sequence[Request]) -> dict[str, Any] | None:
    """Return what metrics.json says of a replay; None for other loads.

    `cached_share` is by usage, null where the server does not tell. `pause_lag_s` is how long after
    its pause a turn was sent.
    """
    stream = replay_stream(load)
    if not stream:
        return None
    rows = in_order(stream)
    names = {row["conversation"] for row in rows if row.get("conversation") is not None}
    can = reusable(stream, requests) if shares(stream) else None
    waited = paused(load, requests)
    lags = [lag_s(request) for request, _ in waited]
    return {
        **{key: mapping(stream.get("trace")).get(key) for key in ("name", "form", "sha256")},
        "left_out": mapping(stream.get("trace")).get("left_out"),
        "requests": len(rows),
        "conversations": len(names),
        "reusable_share_least": None if can is None else can.least,
        "reusable_share_most": None if can is None else can.most,
        "cached_share": cached_share([r for r in requests if r.status == "ok"]),
        "pauses": len(waited),
        "pause_s": distribution([pause for _, pause in waited]),
        "pause_lag_s": distribution([lag for lag in lags if lag is not None]),
    }
