"""Raw request records to one row a request: the per-request metric definitions.

All latencies come from the client's clock and all counts from the server's own usage. With
`first` the first event that carries a token of any kind and `last` the last one:

- TTFT = first - sent of the first try; E2E = last - sent
- TPOT = (last - first) / (output_tokens - 1), null for one token
- req_output_tps = output_tokens / (last - first), null for one token
- ITL, per token: a gap between two chunks that brings n tokens counts as n values of gap / n;
  chunk_gap and chunk_tokens keep what this hides

Which chunk brought how many tokens is read from the cumulative count on the events; where the
server sends none, or counts that contradict its total (flag `token_counts_contradicted`), from its
total, spread evenly over the chunks (flag `chunk_tokens_estimated`). Text behind the last growth of
the count has no token of its own, and is `last`. A part that is more than its whole (cached tokens
than the prompt's, reasoning than the output's) is no count: None.
Only requests with status ok have latencies: half an answer is no sample of a whole one.

All requests of a block are computed at once (`chunks.py`); the arrays of a row are parts of its
block's arrays, and `itl_s` is `chunk_gap_s` itself where every chunk brought one token.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.analysis.chunks import (
    ChunkTable,
    EventTable,
    Mask,
    begins,
    sizes,
    token_chunks,
    touched,
)
from servemap.analysis.failed import contradicted, partial_tokens
from servemap.analysis.raw_requests import (
    NO_COUNT,
    NO_TIME,
    Events,
    Fields,
    Ints,
    RawRequest,
    Usage,
    error_text,
    of_record,
    read_raw_requests,
)
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Skipped
from servemap.telemetry.clock import HEAD_TIMES, LoadTimes

Floats = NDArray[np.float64]
Overlaps = Mapping[str, Sequence[tuple[int, int]]]

STATUSES = ("ok", "failed", "timed_out")

FLAG_CHUNKS = "multi_token_chunks"
FLAG_ESTIMATED = "chunk_tokens_estimated"
FLAG_MORE_EVENTS = "more_chunks_than_tokens"
FLAG_HIDDEN = "hidden_first_tokens"
FLAG_NO_TEXT = "first_token_not_visible"
FLAG_NO_USAGE = "no_usage"
FLAG_REASONING = "reasoning_count_contradicted"
FLAG_COUNTS = "token_counts_contradicted"
FLAG_CACHED = "cached_count_contradicted"
FLAG_THOUGHT = "more_reasoning_than_output"
FLAG_PROMPT = "prompt_tokens_differ"
FLAG_BACKWARDS = "event_times_run_backwards"
FLAG_AT_ONCE = "all_tokens_at_one_time"

# Requests computed at once: arrays of some MB, which fit a cache and cost no memory to speak of.
_BLOCK = 512

_TEXT = ord("t")
_NO_USAGE = Usage()


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


def parse_requests(
    lines: Iterable[JsonLine], overlaps: Overlaps, times: LoadTimes = HEAD_TIMES
) -> Requests:
    """Return the measured requests of decoded records; see `read_requests`."""
    return _requests(map(of_record, lines), overlaps, times, [])


def read_requests(path: Path, overlaps: Overlaps, times: LoadTimes = HEAD_TIMES) -> Requests:
    """Return the measured requests of requests.jsonl.

    Args:
        path: the file.
        overlaps: by segment, the intervals (epoch ns) in which an injected request was running;
            every ITL of another stream in that segment is tagged by whether its gap touches one.
        times: puts the client's times on the head's clock, which `overlaps` are on already.

    Raises:
        OSError: the file cannot be read.
    """
    skipped: list[Skipped] = []
    return _requests(read_raw_requests(path, skipped), overlaps, times, skipped)


def _requests(
    raw: Iterable[RawRequest], overlaps: Overlaps, times: LoadTimes, skipped: list[Skipped]
) -> Requests:
    rows: list[Request] = []
    warmup = {True: 0, False: 0}
    seen: set[str] = set()

    def measured() -> Iterable[RawRequest]:
        for one in raw:
            status, name = one.fields.status, one.fields.id
            if status not in STATUSES or name is None:
                reason = "not a request record: no id or unknown status"
                skipped.append(Skipped(one.line, reason))
            elif one.fields.warmup is True:
                warmup[status == "ok"] += 1
            elif name in seen:
                skipped.append(Skipped(one.line, f"request {name} is there twice"))
            else:
                seen.add(name)
                yield one

    found = iter(measured())
    while block := list(islice(found, _BLOCK)):
        rows.extend(_block(block, overlaps, times))
    return Requests(rows, warmup[True], warmup[False], skipped)


def _block(block: Sequence[RawRequest], overlaps: Overlaps, times: LoadTimes) -> Iterable[Request]:
    """Return the rows of some requests, every column computed at once."""
    fields = [one.fields for one in block]
    usage = [one.usage or _NO_USAGE for one in fields]
    counts = {name: [getattr(one, name) for one in usage] for name in Usage.__struct_fields__}
    reasoning = counts["reasoning_tokens"]
    wrong = [
        contradicted(one.events.kinds.count(b"k"), n)
        for one, n in zip(block, reasoning, strict=True)
    ]
    thought = _exceeding(reasoning, counts["completion_tokens"])
    cached = _exceeding(counts["cached_tokens"], counts["prompt_tokens"])
    counts["reasoning_tokens"] = [
        None if bad or more else n for n, bad, more in zip(reasoning, wrong, thought, strict=True)
    ]
    counts["cached_tokens"] = [
        None if more else n for n, more in zip(counts["cached_tokens"], cached, strict=True)
    ]
    false = {FLAG_REASONING: wrong, FLAG_THOUGHT: thought, FLAG_CACHED: cached}
    events = _event_table(block, times)
    output = _numbers(counts["completion_tokens"], NO_COUNT)
    chunks = token_chunks(events, output, _numbers(counts["reasoning_tokens"], NO_COUNT))
    ok = np.array([one.status == "ok" for one in fields], np.bool_)
    first, last = _edges(chunks, len(block))
    sent = _moments([one.sent_ns for one in fields], times)
    recorded = _moments([one.last_ns for one in fields], times)
    last = np.where(first == NO_TIME, recorded, last)
    timing = _timing(sent, first, last, output, chunks.hidden, ok)
    planned = [one.isl for one in fields]
    names = [(one.stream or "main", one.segment or "main") for one in fields]
    arrays = _arrays(chunks, ok, [segment for _, segment in names], overlaps)
    return map(
        Request._make,
        zip(
            [one.id for one in fields],
            [stream for stream, _ in names],
            [segment for _, segment in names],
            _known(_moments([one.scheduled_ns for one in fields], times)),
            _known(sent),
            _known(first),
            _known(_first_text(events)),
            _known(last),
            [one.status for one in fields],
            [error_text(one.error) for one in fields],
            [one.http_status for one in fields],
            [one.attempts for one in fields],
            planned,
            [one.osl for one in fields],
            counts["prompt_tokens"],
            counts["completion_tokens"],
            counts["cached_tokens"],
            counts["reasoning_tokens"],
            [
                None if one.fields.status == "ok" else _partial(one.events, n)
                for one, n in zip(block, counts["completion_tokens"], strict=True)
            ],
            *map(_known_floats, timing),
            *arrays,
            _flags(
                chunks, fields, counts, planned, false, ok & (first == last) & (first != NO_TIME)
            ),
            strict=True,
        ),
    )


def _exceeding(parts: Sequence[int | None], wholes: Sequence[int | None]) -> list[bool]:
    """Say of each count whether it is more than that of which it is a part."""
    return [
        part is not None and whole is not None and part > whole
        for part, whole in zip(parts, wholes, strict=True)
    ]


def _partial(events: Events, output_tokens: int | None) -> int:
    counts = [] if events.counts is None else events.counts.tolist()
    told = [None if n == NO_COUNT else n for n in counts]
    return partial_tokens(events.kinds.decode("ascii", "replace"), told, output_tokens)


def _event_table(block: Sequence[RawRequest], times: LoadTimes) -> EventTable:
    lengths = [one.events.t_ns.size for one in block]
    t_ns = np.concatenate([one.events.t_ns for one in block])
    missing = t_ns == NO_TIME
    moved = times.all_to_head(t_ns)
    if missing.any():
        moved[missing] = NO_TIME
    counts = [
        np.full(one.events.t_ns.size, NO_COUNT) if one.events.counts is None else one.events.counts
        for one in block
    ]
    return EventTable(
        moved,
        np.frombuffer(b"".join(one.events.kinds for one in block), np.uint8),
        np.concatenate(counts),
        np.repeat(np.arange(len(block)), lengths),
        len(block),
    )


def _edges(chunks: ChunkTable, answers: int) -> tuple[Ints, Ints]:
    """Return when each answer's first chunk and its last event came, NO_TIME where it has none."""
    first = np.full(answers, NO_TIME)
    own = begins(chunks.owner)
    first[chunks.owner[own]] = chunks.t_ns[own]
    return first, chunks.last_ns


def _first_text(events: EventTable) -> Ints:
    """Return the arrival of each answer's first visible text, NO_TIME where that is missing."""
    found = np.full(events.answers, NO_TIME)
    at = np.flatnonzero(events.kinds == _TEXT)
    own = begins(events.owner[at])
    found[events.owner[at[own]]] = events.t_ns[at[own]]
    return found


def _timing(
    sent: Ints, first: Ints, last: Ints, output: Ints, hidden: Mask, ok: Mask
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return TTFT, TPOT, E2E (s) and output tokens/s of each request, NaN where there is none."""
    known = ok & (sent != NO_TIME) & (first != NO_TIME) & (last != NO_TIME)
    known &= (first >= sent) & (last >= first)
    ttft = np.where(known, first - sent, 0) / 1e9
    e2e = np.where(known, last - sent, 0) / 1e9
    decode = np.where(known, last - first, 0) / 1e9
    several = known & (output > 1)
    # The decode interval does not contain hidden tokens, so no TPOT comes from it.
    whole = several & ~hidden & (decode > 0)
    span = np.where(whole, decode, e2e)
    nothing = np.full(ok.size, np.nan)
    tpot = np.divide(decode, output - 1, out=nothing.copy(), where=whole)
    speed = np.divide(output, span, out=nothing.copy(), where=several & (span > 0))
    return np.where(known, ttft, np.nan), tpot, np.where(known, e2e, np.nan), speed


def _arrays(
    chunks: ChunkTable, ok: Mask, segments: Sequence[str], overlaps: Overlaps
) -> tuple[list[Floats], list[Floats], list[Ints], list[Mask]]:
    """Return itl_s, chunk_gap_s, chunk_tokens and itl_overlaps_injection of each request."""
    answers = ok.size
    t_ns, tokens, owner = chunks.t_ns, chunks.tokens, chunks.owner
    if not ok.all():
        used = ok[owner]
        t_ns, tokens, owner = t_ns[used], tokens[used], owner[used]
    behind = ~begins(owner)[1:]
    after, whose = tokens[1:][behind], owner[1:][behind]
    gap_s = (t_ns[1:] - t_ns[:-1])[behind] / 1e9
    hit = np.zeros(whose.size, np.bool_)
    for segment in set(segments) & set(overlaps):
        of_segment = np.array([name == segment for name in segments], np.bool_)
        own = of_segment[whose]
        edges = t_ns[:-1][behind][own], t_ns[1:][behind][own]
        hit[own] = touched(*edges, overlaps[segment])
    of_gaps = sizes(whose, answers)
    gaps = _parts(gap_s, of_gaps)
    if (after == 1).all():
        itls, hits = gaps, _parts(hit, of_gaps)
    else:
        of_tokens = np.bincount(whose, after, minlength=answers).astype(np.int64)
        itls = _parts(np.repeat(gap_s / after, after), of_tokens)
        hits = _parts(np.repeat(hit, after), of_tokens)
    return itls, gaps, _parts(tokens, sizes(owner, answers)), hits


def _parts(values: NDArray[Any], lengths: Ints) -> list[NDArray[Any]]:
    edges = np.concatenate(([0], np.cumsum(lengths))).tolist()
    return [values[begin:end] for begin, end in pairwise(edges)]


def _flags(
    chunks: ChunkTable,
    fields: Sequence[Fields],
    counts: Mapping[str, Sequence[int | None]],
    planned: Sequence[int | None],
    false: Mapping[str, Sequence[bool]],
    at_once: Mask,
) -> list[tuple[str, ...]]:
    output, given = counts["completion_tokens"], counts["prompt_tokens"]
    no_usage = [f.status == "ok" and n is None for f, n in zip(fields, output, strict=True)]
    differs = [p is not None and n not in (None, p) for p, n in zip(planned, given, strict=True)]
    # As of an answer that came in one piece: there is no time between its tokens.
    more = np.array([(n or 0) > 1 for n in output], np.bool_)
    masks = {
        FLAG_BACKWARDS: chunks.backwards,
        FLAG_NO_TEXT: chunks.invisible,
        FLAG_MORE_EVENTS: chunks.more_events,
        FLAG_ESTIMATED: chunks.estimated,
        FLAG_CHUNKS: chunks.several,
        FLAG_HIDDEN: chunks.hidden,
        FLAG_NO_USAGE: np.array(no_usage, np.bool_),
        FLAG_PROMPT: np.array(differs, np.bool_),
        FLAG_COUNTS: chunks.contradicted,
        **{name: np.array(bad, np.bool_) for name, bad in false.items()},
        FLAG_AT_ONCE: at_once & more & ~chunks.hidden,
    }
    found: list[tuple[str, ...]] = [()] * len(fields)
    for name, mask in masks.items():
        for place in np.flatnonzero(mask).tolist():
            found[place] = (*found[place], name)
    return found


def _moments(values: Sequence[int | None], times: LoadTimes) -> Ints:
    """Return moments on the head's clock, NO_TIME where a value is none."""
    raw = _numbers(values, NO_TIME)
    return np.where(raw == NO_TIME, NO_TIME, times.all_to_head(raw))


def _numbers(values: Sequence[int | None], missing: int) -> Ints:
    return np.array([missing if value is None else value for value in values], np.int64)


def _known(moments: Ints) -> list[int | None]:
    return [None if value == NO_TIME else value for value in moments.tolist()]


def _known_floats(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
