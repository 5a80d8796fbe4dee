"""From the bytes of one response to its record: events, usage, and how the request ended."""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .checked import MOST_TOKENS
from .load_alike import Alike
from .load_call import Call
from .load_http import Response
from .load_sse import STRAY, Event, parse_events

MESSAGE_LIMIT = 500

# What vLLM, SGLang and llama.cpp answer when prompt and output do not fit the context.
_CONTEXT = re.compile(
    r"context (length|size|window)|max(imum)?[ _]model[ _]len|exceeds? the max\w* (allowed )?length"
    r"|exceed_context_size",
    re.IGNORECASE,
)
_OOM = re.compile(
    r"out of (\w+ )?memory|OutOfMemory|(cannot|failed to|unable to) allocate|bad_alloc",
    re.IGNORECASE,
)

Json = Dict[str, Any]


class Reading(NamedTuple):
    """What the events of one stream say; `tokens` are cumulative usage counts or None.

    `hidden` says that an event before the finishing one may have held a token without text.
    `closed`: the server said that this was all, by [DONE], a finish reason or the final usage.
    """

    kinds: str
    tokens: List[Optional[int]]
    usage: Optional[Json]
    finish_reason: Optional[str]
    timings: Optional[Json]
    error: Optional[Tuple[str, str]]
    hidden: bool
    closed: bool


def recorded(call: Call, segment: str, warmup: bool, epoch_ns: int) -> Json:
    """Return what `build_record` does; an answer that breaks it is a failed request.

    One answer that nobody thought of must not cost the record of all others.
    """
    try:
        return build_record(call, segment, warmup, epoch_ns)
    except Exception as error:  # noqa: BLE001
        call.outcome = "protocol"
        call.detail = f"the answer cannot be read: {type(error).__name__}: {error}"
        kept, call.response = call.response, Response()
        call.response.status, call.response.last_ns = kept.status, kept.last_ns
        return build_record(call, segment, warmup, epoch_ns)


def build_record(call: Call, segment: str, warmup: bool, epoch_ns: int) -> Json:
    """Return the line of requests.jsonl for `call`.

    Args:
        call: an ended request.
        segment: name of the segment that it belongs to.
        warmup: whether it was sent to warm the server up.
        epoch_ns: what turns this process's monotonic ns into epoch ns.
    """
    response = call.response
    response.unpack()
    events: List[Event] = []
    streamed = response.status == 200 and "json" not in response.content_type
    if streamed:
        events = parse_events(response.pieces, response.times, call.outcome == "complete")
    reading = read_events(events)
    status, error = judge(call, reading, streamed)

    def epoch(value: Optional[int]) -> Optional[int]:
        return None if value is None else value + epoch_ns

    last = last_token_event(reading.kinds, reading.tokens)
    return {
        "id": call.id,
        "segment": segment,
        "stream": call.lane.stream.name,
        "warmup": warmup,
        "isl": call.isl,
        "osl": call.osl,
        "scheduled_ns": epoch(call.scheduled_ns),
        "connect_ns": epoch(call.connected_ns),
        "sent_ns": epoch(call.sent_ns),
        "last_ns": epoch(response.last_ns if last is None else events[last].t_ns),
        "status": status,
        "error": error and {"class": error[0], "message": whole_text(error[1])[:MESSAGE_LIMIT]},
        "http_status": response.status,
        "attempts": call.attempts,
        "t_ns": [event.t_ns + epoch_ns for event in events],
        "kinds": reading.kinds,
        "tokens": reading.tokens if any(n is not None for n in reading.tokens) else None,
        "usage": reading.usage,
        "finish_reason": reading.finish_reason,
        "timings": reading.timings,
    }


def read_events(events: List[Event]) -> Reading:
    """Interpret OpenAI-style stream chunks of completions or chat, one kind letter an event.

    r role only or empty, t text, k reasoning, c tool call, u usage only, e error, d [DONE].
    """
    kinds: List[str] = []
    tokens: List[Optional[int]] = []
    usage: Optional[Json] = None
    finish: Optional[str] = None
    timings: Optional[Json] = None
    error: Optional[Tuple[str, str]] = None
    hidden = done = False
    counted_at: Optional[int] = None
    alike = Alike()
    for event in events:
        if not event.name and alike.repeats(event.data):
            kinds.append(alike.kind)
            tokens.append(None)
            continue
        count: Optional[int] = None
        if event.data.strip() == "[DONE]":
            kind, done = "d", True
        else:
            chunk = None if event.name == STRAY else _decode(event.data)
            fault = _fault(event, chunk)
            if chunk is None or fault is not None:
                kind = "e"
                error = error or fault
            else:
                kind = _kind(chunk)
                error = error or _bad_count(event.data, chunk)
                counted = _usage(chunk)
                usage = counted or usage
                count = _whole((_object(chunk.get("usage")) or {}).get("completion_tokens"))
                if kind == "u" and count and counted_at is None:
                    counted_at = len(kinds)
                ending = _finish_reason(chunk)
                if ending is None and kind == "r":
                    hidden = hidden or _blank(chunk) or bool(count)
                finish = ending or finish
                timed = _object(chunk.get("timings"))
                timings = timed or timings
                if kind in "tk" and not (event.name or counted or ending or timed):
                    alike.learn(event.data, kind)
        kinds.append(kind)
        tokens.append(count)
    letters = "".join(kinds)
    # Counts that run along with the tokens say nothing of the end; those on an event of their own
    # do, unless tokens follow.
    final = counted_at is not None and not set(letters[counted_at:]) & set("tkc")
    closed = done or finish is not None or final
    return Reading(letters, tokens, usage, finish, timings, error, hidden, closed)


def judge(call: Call, reading: Reading, streamed: bool) -> Tuple[str, Optional[Tuple[str, str]]]:
    """Decide status (ok, failed, timed_out) and error (class, message) of an ended request."""
    response = call.response
    if call.outcome == "timeout":
        return "timed_out", ("timeout", call.detail)
    if call.outcome in ("refused", "protocol"):
        return "failed", (call.outcome, call.detail)
    if response.status not in (None, 200):
        reason = error_message(b"".join(response.pieces)) or f"HTTP {response.status}"
        return "failed", (_class_of(reason, "http"), reason)
    if reading.error is not None:
        return "failed", reading.error
    if call.outcome in ("cut", "aborted") and "d" not in reading.kinds:
        return "failed", ("cut", call.detail)
    if not streamed:
        message = error_message(b"".join(response.pieces))
        if message is None:
            return "failed", ("protocol", "the server answered without streaming")
        return "failed", (_class_of(message, "stream_error"), message)
    produced = (reading.usage or {}).get("completion_tokens")
    if not set(reading.kinds) & set("tkc"):
        if not produced:
            return "failed", ("empty", "the stream ended without a token")
        # The finishing event may hold one token whose bytes are no text yet, never all of many.
        if not reading.hidden and not (produced == 1 and "r" in reading.kinds):
            said = f"usage says {produced} token{'s' if produced > 1 else ''}"
            return "failed", ("empty", f"{said}, the stream carried none")
    if not reading.closed:
        return "failed", ("cut", "the stream ended without [DONE], a finish reason or final usage")
    return "ok", None


def first_token_event(kinds: str, tokens: List[Optional[int]]) -> Optional[int]:
    """Index of the first event that brought a token of any kind, hidden ones included."""
    for index, kind in enumerate(kinds):
        if kind in "tkc" or (kind == "r" and tokens[index]):
            return index
    return None


def last_token_event(kinds: str, tokens: List[Optional[int]]) -> Optional[int]:
    """Index of the last event that brought a token.

    An empty chunk counts where its token count grew over all earlier chunks': llama.cpp closes
    with an empty chunk that carries the only count, and no token.
    """
    last: Optional[int] = None
    known: Optional[int] = None
    for index, kind in enumerate(kinds):
        count = tokens[index]
        grew = count is not None and known is not None and count > known
        if kind in "tkc" or (kind == "r" and (grew or (last is None and count))):
            last = index
        if count is not None:
            known = max(count, known or 0)
    return last


def error_message(body: bytes) -> Optional[str]:
    """Return the message in an error body of any of the usual shapes, or None if it has none."""
    text = body.decode("utf-8", "replace").strip()
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return text or None
    return _message(decoded)


def whole_text(text: str) -> str:
    """Return a text that can be written anywhere: halves of surrogate pairs are spelled.

    JSON may hold them, UTF-8 may not (RFC 3629, 3).
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _message(decoded: Any) -> Optional[str]:
    if not isinstance(decoded, dict):
        return str(decoded)
    fault = decoded.get("error") or decoded.get("detail")
    if fault is None and ("choices" in decoded or not decoded.get("message")):
        return None
    fault = fault or decoded["message"]
    if isinstance(fault, dict) and fault.get("message"):
        return str(fault["message"])
    return fault if isinstance(fault, str) else json.dumps(fault)


def _fault(event: Event, chunk: Optional[Json]) -> Optional[Tuple[str, str]]:
    if event.name == STRAY:
        return "protocol", f"the stream holds a line that is no event: {event.data[:80]!r}"
    if chunk is None:
        if event.name == "error":
            return _class_of(event.data, "stream_error"), event.data
        return "protocol", f"an event holds no JSON object: {event.data[:80]!r}"
    message = _message(chunk)
    if message is None and event.name == "error":
        message = event.data
    return None if message is None else (_class_of(message, "stream_error"), message)


def _class_of(message: str, otherwise: str) -> str:
    if _CONTEXT.search(message):
        return "context"
    return "oom" if _OOM.search(message) else otherwise


def _decode(data: str) -> Optional[Json]:
    try:
        # NaN and infinity, which JSON does not have, are no values.
        return _object(json.loads(data, parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        return None


def _object(value: Any) -> Optional[Json]:
    return value if isinstance(value, dict) else None


def _whole(value: Any) -> Optional[int]:
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if counts else None


def _choices(chunk: Json) -> List[Json]:
    choices = chunk.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def _kind(chunk: Json) -> str:
    choices = _choices(chunk)
    if not choices:
        return "u" if _object(chunk.get("usage")) else "r"
    seen = ""
    for choice in choices:
        delta = _object(choice.get("delta")) or {}
        if choice.get("text") or delta.get("content"):
            return "t"
        if delta.get("reasoning_content") or delta.get("reasoning"):
            seen = "k"
        elif delta.get("tool_calls") or delta.get("function_call"):
            seen = seen or "c"
    return seen or "r"


def _finish_reason(chunk: Json) -> Optional[str]:
    for choice in _choices(chunk):
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            return whole_text(reason)
    return None


def _blank(chunk: Json) -> bool:
    """Whether a choice has its place for text, and nothing in it: a token may have no text yet."""
    for choice in _choices(chunk):
        delta = _object(choice.get("delta")) or {}
        if choice.get("text") == "" or (delta.get("content") == "" and "role" not in delta):
            return True
    return False


def _counts(chunk: Json) -> Optional[Json]:
    usage = _object(chunk.get("usage"))
    if usage is None:
        return None
    prompt = _object(usage.get("prompt_tokens_details")) or {}
    output = _object(usage.get("completion_tokens_details")) or {}
    return {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": prompt.get("cached_tokens"),
        # SGLang keeps the reasoning count beside the totals.
        "reasoning_tokens": output.get("reasoning_tokens", usage.get("reasoning_tokens")),
    }


def _usage(chunk: Json) -> Optional[Json]:
    counts = _counts(chunk)
    return counts and {name: _whole(value) for name, value in counts.items()}


def _bad_count(data: str, chunk: Json) -> Optional[Tuple[str, str]]:
    if "NaN" in data or "Infinity" in data:
        chunk = json.loads(data)  # with them as floats; the decoded chunk has nulls there
    for name, value in (_counts(chunk) or {}).items():
        if value is not None and _whole(value) is None:
            return "protocol", f"usage gives {repr(value)[:40]} as {name}, which is no count"
    return None
