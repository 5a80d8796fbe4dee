"""Raw request records to one row a request: the per-request metric definitions.

All latencies come from the client's clock and all counts from the server's own usage. With
`first` the first event that carries a token of any kind and `last` the last one:

- TTFT = first - sent of the first try; E2E = last - sent
- TPOT = (last - first) / (output_tokens - 1), null for one token
- req_output_tps = output_tokens / (last - first), null for one token
- ITL, per token: a gap between two chunks that brings n tokens counts as n values of gap / n;
  chunk_gap and chunk_tokens keep what this hides

Which chunk brought how many tokens is read from the cumulative count on the events; where the
server sends none, from its total, spread evenly over the chunks (flag `chunk_tokens_estimated`).
Only requests with status ok have latencies: half an answer is no sample of a whole one.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.analysis.failed import contradicted, partial_tokens
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Skipped
from servemap.parsers.values import integer, mapping, sequence, text

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOKEN_KINDS = "tkc"
STATUSES = ("ok", "failed", "timed_out")
# A first chunk hides tokens when it brings more than this many and more than twice what the
# following chunks bring: then the time before it is decode time too.
HIDDEN_TOKENS = 4
HIDDEN_RATIO = 2.0

FLAG_CHUNKS = "multi_token_chunks"
FLAG_ESTIMATED = "chunk_tokens_estimated"
FLAG_MORE_EVENTS = "more_chunks_than_tokens"
FLAG_HIDDEN = "hidden_first_tokens"
FLAG_NO_TEXT = "first_token_not_visible"
FLAG_NO_USAGE = "no_usage"
FLAG_REASONING = "reasoning_count_contradicted"
FLAG_PROMPT = "prompt_tokens_differ"
FLAG_BACKWARDS = "event_times_run_backwards"
FLAG_AT_ONCE = "all_tokens_at_one_time"

# More tokens than any context holds is damage, not a count.
MOST_TOKENS = 100_000_000


class Request(NamedTuple):
    """One measured request; times in epoch ns, `_s` in seconds, None where not measured.

    `partial_output_tokens` are those that came before it failed; None of one that succeeded.
    """

    id: str
    stream: str
    segment: str
    scheduled_ns: int | None
    sent_ns: int | None
    first_ns: int | None
    first_text_ns: int | None
    last_ns: int | None
    status: str
    error: str | None
    http_status: int | None
    attempts: int | None
    input_planned: int | None
    output_planned: int | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    partial_output_tokens: int | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    req_output_tps: float | None
    itl_s: Floats
    chunk_gap_s: Floats
    chunk_tokens: Ints
    itl_overlaps_injection: NDArray[np.bool_]
    flags: tuple[str, ...]


class Requests(NamedTuple):
    """Measured requests in the order of their records, warm-up counts, and what was skipped."""

    rows: list[Request]
    warmup_ok: int
    warmup_failed: int
    skipped: list[Skipped]


class Chunks(NamedTuple):
    """Token-carrying events: arrival (epoch ns), tokens each, and flags on how it is known."""

    t_ns: Ints
    tokens: Ints
    flags: tuple[str, ...]


NO_CHUNKS = Chunks(np.empty(0, np.int64), np.empty(0, np.int64), ())


def parse_requests(
    lines: Iterable[JsonLine],
    overlaps: dict[str, list[tuple[int, int]]],
    to_head: Callable[[int], int] = int,
) -> Requests:
    """Return the measured requests of requests.jsonl.

    Args:
        lines: whole lines of the file.
        overlaps: by segment, the intervals (epoch ns) in which an injected request was running;
            every ITL of another stream in that segment is tagged by whether its gap touches one.
        to_head: puts the client's times on the head's clock, which `overlaps` are on already.
    """
    rows: list[Request] = []
    warmup = {True: 0, False: 0}
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for line in lines:
        record = line.value
        status, name = text(record.get("status")), text(record.get("id"))
        if status not in STATUSES or name is None:
            skipped.append(Skipped(line.line, "not a request record: no id or unknown status"))
        elif record.get("warmup") is True:
            warmup[status == "ok"] += 1
        elif name in seen:
            skipped.append(Skipped(line.line, f"request {name} is there twice"))
        else:
            seen.add(name)
            segment = text(record.get("segment")) or "main"
            rows.append(_request(_moved(record, to_head), name, status, overlaps.get(segment, [])))
    return Requests(rows, warmup[True], warmup[False], skipped)


def _moved(record: dict[str, Any], to_head: Callable[[int], int]) -> dict[str, Any]:
    """Return a record with its times on the head's clock."""
    moved = dict(record)
    for name in ("scheduled_ns", "sent_ns", "last_ns"):
        known = integer(record.get(name))
        moved[name] = None if known is None else to_head(known)
    times = [integer(t) for t in sequence(record.get("t_ns"))]
    moved["t_ns"] = [None if t is None else to_head(t) for t in times]
    return moved


def _request(
    record: dict[str, Any], name: str, status: str, overlaps: list[tuple[int, int]]
) -> Request:
    usage = mapping(record.get("usage"))
    output_tokens = _count(usage.get("completion_tokens"))
    reasoning = _count(usage.get("reasoning_tokens"))
    kinds = text(record.get("kinds")) or ""
    counts = [integer(n) for n in sequence(record.get("tokens"))]
    wrong = contradicted(kinds.count("k"), reasoning)
    reasoning = None if wrong else reasoning
    chunks = token_chunks(
        [integer(t) for t in sequence(record.get("t_ns"))],
        kinds,
        counts,
        output_tokens,
        reasoning,
    )
    sent = integer(record.get("sent_ns"))
    first = int(chunks.t_ns[0]) if chunks.t_ns.size else None
    last = int(chunks.t_ns[-1]) if chunks.t_ns.size else integer(record.get("last_ns"))
    planned_input = integer(record.get("isl"))
    input_tokens = _count(usage.get("prompt_tokens"))
    flags = list(chunks.flags)
    if status == "ok" and output_tokens is None:
        flags.append(FLAG_NO_USAGE)
    if planned_input is not None and input_tokens not in (None, planned_input):
        flags.append(FLAG_PROMPT)
    if wrong:
        flags.append(FLAG_REASONING)
    timing = _NO_TIMING
    if status == "ok" and sent is not None and first is not None and last is not None:
        timing = _timing(sent, first, last, output_tokens, chunks)
        # As of an answer that came in one piece: there is no time between its tokens.
        if first == last and (output_tokens or 0) > 1 and FLAG_HIDDEN not in flags:
            flags.append(FLAG_AT_ONCE)
    gaps_ns = np.diff(chunks.t_ns) if status == "ok" else np.empty(0, np.int64)
    after_first = chunks.tokens[1:] if status == "ok" else np.empty(0, np.int64)
    return Request(
        id=name,
        stream=text(record.get("stream")) or "main",
        segment=text(record.get("segment")) or "main",
        scheduled_ns=integer(record.get("scheduled_ns")),
        sent_ns=sent,
        first_ns=first,
        first_text_ns=_first_text(record),
        last_ns=last,
        status=status,
        error=_error(record.get("error")),
        http_status=integer(record.get("http_status")),
        attempts=integer(record.get("attempts")),
        input_planned=planned_input,
        output_planned=integer(record.get("osl")),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=_count(usage.get("cached_tokens")),
        reasoning_tokens=reasoning,
        partial_output_tokens=(
            None if status == "ok" else partial_tokens(kinds, counts, output_tokens)
        ),
        ttft_s=timing.ttft_s,
        tpot_s=timing.tpot_s,
        e2e_s=timing.e2e_s,
        req_output_tps=timing.output_tps,
        itl_s=np.repeat(gaps_ns / 1e9 / np.maximum(after_first, 1), after_first),
        chunk_gap_s=gaps_ns / 1e9,
        chunk_tokens=chunks.tokens if status == "ok" else np.empty(0, np.int64),
        itl_overlaps_injection=np.repeat(
            _touches(chunks.t_ns, overlaps) if status == "ok" else np.empty(0, np.bool_),
            after_first,
        ),
        flags=tuple(flags),
    )


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
    counted = _counted_chunks(events)
    if counted is not None:
        return counted
    arrivals = [t for t, kind, _ in events if kind in TOKEN_KINDS]
    if not arrivals:
        return _invisible_chunk(events, output_tokens)
    hidden = 0
    if "k" not in kinds and output_tokens is not None:
        # Reasoning that was counted and never sent came before the first visible chunk.
        hidden = min(reasoning_tokens or 0, max(output_tokens - len(arrivals), 0))
    visible = None if output_tokens is None else output_tokens - hidden
    tokens, flags = _spread(len(arrivals), visible)
    tokens[0] += hidden
    return _flagged(np.array(arrivals, np.int64), tokens, flags)


def _counted_chunks(events: list[tuple[int, str, int | None]]) -> Chunks | None:
    """Chunks from cumulative counts; None where the token-carrying events do not have them."""
    carrying = [count for _, kind, count in events if kind in TOKEN_KINDS]
    growing = [count for _, kind, count in events if kind != "u" and count]
    if not growing or any(count is None for count in carrying):
        return None
    arrivals: list[int] = []
    tokens: list[int] = []
    total = 0
    for t, kind, count in events:
        if count is None or count <= total:
            continue
        if kind == "u" and arrivals:
            # The usage event states a total; it carries no token of its own.
            tokens[-1] += count - total
        else:
            arrivals.append(t)
            tokens.append(count - total)
        total = count
    return _flagged(np.array(arrivals, np.int64), np.array(tokens, np.int64), [])


def _invisible_chunk(
    events: list[tuple[int, str, int | None]], output_tokens: int | None
) -> Chunks:
    """Tokens that never showed (an unfinished character, a stripped stop word).

    The last empty or usage event is when they were certainly there: an upper bound.
    """
    bounds = [t for t, kind, _ in events if kind in "ru"]
    if not output_tokens or not bounds:
        return NO_CHUNKS
    empty = [t for t, kind, _ in events if kind == "r"]
    at = empty[-1] if empty else bounds[0]
    return Chunks(np.array([at], np.int64), np.array([output_tokens], np.int64), (FLAG_NO_TEXT,))


def _spread(chunks: int, total: int | None) -> tuple[Ints, list[str]]:
    """Spread `total` tokens over `chunks` events as evenly as whole tokens allow."""
    if total is None or total == chunks:
        return np.ones(chunks, np.int64), []
    if total < chunks:
        return np.ones(chunks, np.int64), [FLAG_MORE_EVENTS]
    edges = np.arange(chunks + 1, dtype=np.int64) * total // chunks
    return np.diff(edges), [FLAG_ESTIMATED]


def _flagged(t_ns: Ints, tokens: Ints, flags: list[str]) -> Chunks:
    if (np.diff(t_ns) < 0).any():
        return NO_CHUNKS._replace(flags=(FLAG_BACKWARDS,))
    if (tokens[1:] > 1).any():
        flags = [*flags, FLAG_CHUNKS]
    usual = float(np.median(tokens[1:])) if tokens.size > 1 else 0.0
    if tokens.size and tokens[0] > max(HIDDEN_TOKENS, HIDDEN_RATIO * usual):
        flags = [*flags, FLAG_HIDDEN]
    return Chunks(t_ns, tokens, tuple(flags))


class _Timing(NamedTuple):
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    output_tps: float | None


_NO_TIMING = _Timing(None, None, None, None)


def _timing(sent: int, first: int, last: int, output_tokens: int | None, chunks: Chunks) -> _Timing:
    ttft, e2e, decode = (first - sent) / 1e9, (last - sent) / 1e9, (last - first) / 1e9
    if ttft < 0 or decode < 0:
        return _NO_TIMING
    if output_tokens is None or output_tokens <= 1:
        return _Timing(ttft, None, e2e, None)
    if FLAG_HIDDEN in chunks.flags or decode == 0:
        # The decode interval does not contain the hidden tokens, so no TPOT comes from it.
        return _Timing(ttft, None, e2e, output_tokens / e2e if e2e > 0 else None)
    return _Timing(ttft, decode / (output_tokens - 1), e2e, output_tokens / decode)


def _touches(t_ns: Ints, intervals: list[tuple[int, int]]) -> NDArray[np.bool_]:
    """Say of each gap between consecutive chunks whether it overlaps one of the intervals."""
    touched = np.zeros(max(t_ns.size - 1, 0), np.bool_)
    for begin, end in intervals:
        touched |= (t_ns[:-1] < end) & (t_ns[1:] > begin)
    return touched


def _first_text(record: dict[str, Any]) -> int | None:
    kinds = text(record.get("kinds")) or ""
    position = kinds.find("t")
    times = sequence(record.get("t_ns"))
    return integer(times[position]) if 0 <= position < len(times) else None


def _count(value: Any) -> int | None:
    count = integer(value)
    return count if count is not None and 0 <= count <= MOST_TOKENS else None


def _error(value: Any) -> str | None:
    if value is None:
        return None
    fields = mapping(value)
    name, message = text(fields.get("class")), text(fields.get("message"))
    return ": ".join(part for part in (name or "unknown", message) if part)
