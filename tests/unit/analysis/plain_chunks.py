"""Which events brought how many tokens, one answer and one event at a time.

The plain form of `servemap.analysis.chunks`, which computes the same over all answers at once.
"""

from typing import NamedTuple

import numpy as np

TOKEN_KINDS = "tkc"
HIDDEN_TOKENS = 4
HIDDEN_RATIO = 2.0
FLAG_CHUNKS = "multi_token_chunks"
FLAG_ESTIMATED = "chunk_tokens_estimated"
FLAG_MORE_EVENTS = "more_chunks_than_tokens"
FLAG_HIDDEN = "hidden_first_tokens"
FLAG_NO_TEXT = "first_token_not_visible"
FLAG_COUNTS = "token_counts_contradicted"
FLAG_BACKWARDS = "event_times_run_backwards"
Ints = np.ndarray


class Chunks(NamedTuple):
    t_ns: Ints
    tokens: Ints
    flags: tuple[str, ...]
    last_ns: int | None = None


NO_CHUNKS = Chunks(np.empty(0, np.int64), np.empty(0, np.int64), ())


def token_chunks(
    t_ns: list[int | None],
    kinds: str,
    cumulative: list[int | None],
    output_tokens: int | None,
    reasoning_tokens: int | None,
) -> Chunks:
    """Return which events brought how many tokens.

    Args:
        t_ns: arrival of each event.
        kinds: one letter an event (r role or empty, t text, k reasoning, c tool call, u usage,
            e error, d end); text, reasoning and tool calls carry tokens.
        cumulative: the server's completion count on each event, None where it carried none.
        output_tokens: the server's total, None where it never said.
        reasoning_tokens: the part of the total that was reasoning, None where it never said.
    """
    events = [
        (t, kind, cumulative[i] if i < len(cumulative) else None)
        for i, (t, kind) in enumerate(zip(t_ns, kinds, strict=False))
        if t is not None and kind not in "de"
    ]
    arrivals = [t for t, kind, _ in events if kind in TOKEN_KINDS]
    flags = []
    told = [count for _, _, count in events if count is not None]
    most = max(told, default=0)
    carrying = [count for _, kind, count in events if kind in TOKEN_KINDS]
    growing = any(count for _, kind, count in events if kind != "u")
    usable = growing and all(carrying)
    if told != sorted(told) or (
        output_tokens is not None and (most > output_tokens or (usable and most < output_tokens))
    ):
        flags, usable = [FLAG_COUNTS], False
    if output_tokens is not None and len(arrivals) > output_tokens:
        flags = [*flags, FLAG_MORE_EVENTS]
    if usable:
        grown, tokens, alive = _counted_chunks(events)
        if len(grown) > 1 or not 1 < len(arrivals) <= most:
            return _flagged(np.array(grown, np.int64), np.array(tokens, np.int64), flags, alive)
    if not arrivals:
        return _invisible_chunk(events, output_tokens, flags)
    hidden = 0
    if "k" not in kinds and output_tokens is not None:
        # Reasoning that was counted and never sent came before the first visible chunk.
        hidden = min(reasoning_tokens or 0, max(output_tokens - len(arrivals), 0))
    visible = None if output_tokens is None else output_tokens - hidden
    tokens, estimated = _spread(len(arrivals), visible)
    tokens[0] += hidden
    held = visible is not None and visible - len(arrivals) >= HIDDEN_TOKENS
    begins = next(kind for _, kind, _ in events if kind in TOKEN_KINDS)
    named = held and begins == "c"
    return _flagged(np.array(arrivals, np.int64), tokens, [*flags, *estimated], arrivals, named)


def _counted_chunks(
    events: list[tuple[int, str, int | None]],
) -> tuple[list[int], list[int], list[int]]:
    """Return when a cumulative count grew, by how much, and when it grew or text came."""
    arrivals: list[int] = []
    tokens: list[int] = []
    alive: list[int] = []
    total = 0
    for t, kind, count in events:
        grew = count is not None and count > total
        if kind in TOKEN_KINDS or (grew and not (kind == "u" and arrivals)):
            alive.append(t)
        if not grew:
            continue
        if kind == "u" and arrivals:
            # The usage event states a total; it carries no token of its own.
            tokens[-1] += count - total
        else:
            arrivals.append(t)
            tokens.append(count - total)
        total = count
    return arrivals, tokens, alive


def _invisible_chunk(
    events: list[tuple[int, str, int | None]], output_tokens: int | None, flags: list[str]
) -> Chunks:
    """Tokens that never showed (an unfinished character, a stripped stop word).

    The last empty or usage event is when they were certainly there: an upper bound.
    """
    bounds = [t for t, kind, _ in events if kind in "ru"]
    if not output_tokens or not bounds:
        return NO_CHUNKS._replace(flags=tuple(flags))
    empty = [t for t, kind, _ in events if kind == "r"]
    at = empty[-1] if empty else bounds[0]
    shown = (*flags, FLAG_NO_TEXT)
    return Chunks(np.array([at], np.int64), np.array([output_tokens], np.int64), shown, at)


def _spread(chunks: int, total: int | None) -> tuple[Ints, list[str]]:
    """Spread `total` tokens over `chunks` events as evenly as whole tokens allow."""
    if total is None or total <= chunks:
        return np.ones(chunks, np.int64), []
    edges = np.arange(chunks + 1, dtype=np.int64) * total // chunks
    return np.diff(edges), [FLAG_ESTIMATED]


def _flagged(
    t_ns: Ints, tokens: Ints, flags: list[str], alive: list[int], named: bool = False
) -> Chunks:
    if alive != sorted(alive):
        about_counts = [f for f in flags if f in (FLAG_COUNTS, FLAG_MORE_EVENTS)]
        return NO_CHUNKS._replace(flags=(*about_counts, FLAG_BACKWARDS))
    if (tokens[1:] > 1).any():
        flags = [*flags, FLAG_CHUNKS]
    usual = float(np.median(tokens[1:])) if tokens.size > 1 else 0.0
    if named or (tokens.size and tokens[0] > max(HIDDEN_TOKENS, HIDDEN_RATIO * usual)):
        flags = [*flags, FLAG_HIDDEN]
    return Chunks(t_ns, tokens, tuple(flags), alive[-1])
