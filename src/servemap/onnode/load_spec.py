"""The load specification: what to send, checked before anything is sent.

A LoadSpec is JSON (`schema: 1`); every error names the key, the value and the remedy.
"""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .checked import MAX_COUNT, Table, number, read_json, refuse, seconds
from .load_arrivals import PROCESSES, arrivals
from .load_chat import Chat, parse_chat
from .load_flush import Flush, parse_flush
from .load_profile import Profile, parse_profile

SCHEMA = 1
RESERVED = ("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "n")


class Recorded(NamedTuple):
    """One request of a replay: lengths in tokens, and by what its prompt is like others.

    `blocks` name the prompt's leading blocks; without them the prompts of one `conversation` begin
    alike. `think_s` is the pause between the end of the turn before and this one.
    """

    isl: int
    osl: int
    conversation: Optional[str]
    blocks: Tuple[int, ...]
    think_s: float = 0.0


class Stream(NamedTuple):
    """One kind of request: `closed` (fixed concurrency) or sent at `at_s` seconds.

    These are given (`at`) or drawn from an arrival process (`rate`). `prefix`: so many of the
    prompt's first tokens are the same in all prompts of one seed. `recorded`: the requests of a
    `replay`, whose lengths stand in for `isl` and `osl`.
    """

    name: str
    kind: str
    isl: int
    osl: int
    concurrency: int
    num_prompts: int
    at_s: Tuple[float, ...]
    prefix: int = 0
    recorded: Tuple[Recorded, ...] = ()
    block_tokens: int = 1


class Segment(NamedTuple):
    """Streams that start together; it ends when all their requests have ended."""

    name: str
    streams: Tuple[Stream, ...]


class LoadSpec(NamedTuple):
    """A checked specification; times in seconds, `vocab` is [lo, hi) of token ids.

    `load_id` is what client.json repeats, so that nobody takes it for the record of another load.
    """

    url: str
    endpoint: str
    model: str
    seed: str
    load_id: Optional[str]
    vocab: Tuple[int, int]
    request: Dict[str, Any]
    api_key_env: Optional[str]
    timeout_s: float
    case_timeout_s: float
    warmup: Optional[Segment]
    min_window_s: float
    segments: Tuple[Segment, ...]
    chat: Optional[Chat] = None
    flush: Optional[Flush] = None
    profile: Optional[Profile] = None


def load_spec(path: str) -> LoadSpec:
    """Read and check the specification in the file `path`; raises SpecError."""
    return parse_spec(read_json(path))


def parse_spec(raw: Any) -> LoadSpec:
    """Check a decoded specification; raises SpecError naming the first bad key."""
    top = Table(raw, "")
    if top.get("schema") != SCHEMA:
        refuse("schema", top.get("schema"), f"this client reads schema {SCHEMA}")
    spec = LoadSpec(
        url=top.text("url"),
        endpoint=top.text("endpoint", "/v1/completions"),
        model=top.text("model"),
        seed=top.text("seed"),
        load_id=top.optional_text("load_id"),
        vocab=_vocab(top.get("vocab")),
        request=_request(top.get("request", {})),
        api_key_env=top.optional_text("api_key_env"),
        timeout_s=top.number("timeout_s", above=0),
        case_timeout_s=top.number("case_timeout_s", above=0),
        warmup=_warmup(top.get("warmup")),
        min_window_s=top.number("min_window_s", 0),
        segments=(),
        chat=parse_chat(top.get("chat")),
        flush=parse_flush(top.get("flush")),
        profile=parse_profile(top.get("profile")),
    )
    spec = spec._replace(segments=_segments(top.get("segments"), spec.seed))
    top.finish()
    if spec.profile and spec.profile.segment not in [one.name for one in spec.segments]:
        refuse("profile.segment", spec.profile.segment, "name one of the segments")
    if not spec.endpoint.startswith("/"):
        refuse("endpoint", spec.endpoint, "give the path, e.g. /v1/completions")
    if spec.chat and spec.chat.tools and "tools" in spec.request:
        refuse("request.tools", spec.request["tools"], "chat.tools makes them; give one of the two")
    streams = [stream for one in spec.segments for stream in one.streams]
    if spec.chat and any(stream.prefix or stream.recorded for stream in streams):
        refuse("chat", list(spec.chat.roles), "prefixes and replays are of token ids")
    if spec.endpoint.rstrip("/").endswith("/chat/completions") != (spec.chat is not None):
        refuse(
            "endpoint",
            spec.endpoint,
            "a chat endpoint takes messages, any other a prompt of token ids: "
            "give the key chat with the one and leave it out with the other",
        )
    return spec


def _vocab(raw: Any) -> Tuple[int, int]:
    good = isinstance(raw, list) and len(raw) == 2 and all(type(value) is int for value in raw)
    if not good or not 0 <= raw[0] < raw[1] - 1 <= MAX_COUNT:
        refuse("vocab", raw, "give [LO, HI) with at least two token ids")
    return raw[0], raw[1]


def _request(raw: Any) -> Dict[str, Any]:
    if not isinstance(raw, dict):
        refuse("request", raw, "give an object of extra body fields")
    for name in RESERVED:
        if name in raw:
            refuse(f"request.{name}", raw[name], "the client sets this field itself")
    try:
        json.dumps(raw, allow_nan=False)
    except ValueError:
        refuse("request", raw, "JSON has no NaN and no infinity")
    options = raw.get("stream_options", {})
    if not isinstance(options, dict):
        refuse("request.stream_options", options, "give an object")
    return raw


def _warmup(raw: Any) -> Optional[Segment]:
    if raw is None:
        return None
    table = Table(raw, "warmup")
    stream = _closed(table, "warmup")
    table.finish()
    return Segment("warmup", (stream,))


def _closed(table: Table, name: str) -> Stream:
    isl = table.whole("isl")
    return Stream(
        name=name,
        kind="closed",
        isl=isl,
        osl=table.whole("osl"),
        concurrency=table.whole("concurrency"),
        num_prompts=table.whole("num_prompts"),
        at_s=(),
        prefix=_prefix(table, isl),
    )


def _prefix(table: Table, isl: int) -> int:
    prefix = table.whole("prefix_tokens", 0, 0)
    if prefix >= isl:
        refuse(table.key("prefix_tokens"), prefix, "give less than isl: prompts must differ")
    return prefix


def _segments(raw: Any, seed: str) -> Tuple[Segment, ...]:
    if not isinstance(raw, list) or not raw:
        refuse("segments", raw, "give a list with at least one segment")
    segments: List[Segment] = []
    for index, item in enumerate(raw):
        where = f"segments[{index}]"
        table = Table(item, where)
        name = _name(table)
        streams = table.get("streams")
        if not isinstance(streams, list) or not streams:
            refuse(f"{where}.streams", streams, "give a list with at least one stream")
        parsed = tuple(
            _stream(Table(stream, f"{where}.streams[{index}]"), f"{seed}/{name}")
            for index, stream in enumerate(streams)
        )
        _distinct([stream.name for stream in parsed], f"{where}.streams")
        table.finish()
        segments.append(Segment(name, parsed))
    _distinct([segment.name for segment in segments], "segments")
    return tuple(segments)


def _stream(table: Table, seed: str) -> Stream:
    name = _name(table)
    kind = table.get("kind")
    if kind == "closed":
        stream = _closed(table, name)
    elif kind == "at":
        times = table.get("at_s")
        if not isinstance(times, list) or not times:
            refuse(table.key("at_s"), times, "give a list of seconds after the segment's start")
        offsets = tuple(sorted(seconds(time, table.key("at_s")) for time in times))
        stream = Stream(
            name=name,
            kind="at",
            isl=table.whole("isl"),
            osl=table.whole("osl"),
            concurrency=len(offsets),
            num_prompts=len(offsets),
            at_s=offsets,
        )
    elif kind == "rate":
        stream = _rate(table, name, seed)
    elif kind == "replay":
        stream = _replay(table, name)
    else:
        refuse(table.key("kind"), kind, "give closed, at, rate or replay")
    table.finish()
    return stream


def _rate(table: Table, name: str, seed: str) -> Stream:
    count = table.whole("num_prompts")
    rate = number(table.get("rate_rps"), table.key("rate_rps"), MAX_COUNT, 0, "requests per second")
    process = table.choice("arrivals", PROCESSES, "poisson")
    shape = table.get("burstiness")
    if (shape is not None) != (process == "gamma"):
        refuse(table.key("burstiness"), shape, "give it with arrivals: gamma, and only with that")
    where = table.key("burstiness")
    shape = 1.0 if shape is None else number(shape, where, 1000, 0, "a number")
    times = arrivals(process, rate, shape, count, f"{seed}/{name}")
    return Stream(
        name=name,
        kind="rate",
        isl=table.whole("isl"),
        osl=table.whole("osl"),
        concurrency=count,
        num_prompts=count,
        at_s=times,
    )


def _replay(table: Table, name: str) -> Stream:
    """Read a stream of recorded requests: at their times, or in a closed loop if `concurrency`.

    `trace` says where they come from; it is only kept.
    """
    about = table.get("trace", {})
    if not isinstance(about, dict):
        refuse(table.key("trace"), about, "give an object")
    raw = table.get("requests")
    if not isinstance(raw, list) or not raw:
        refuse(table.key("requests"), raw, "give a list with at least one request")
    rows = [_recorded(Table(item, f"{table.where}.requests[{i}]")) for i, item in enumerate(raw)]
    concurrency = table.optional_whole("concurrency")
    times: Tuple[float, ...] = ()
    if concurrency is None:
        rows.sort(key=lambda row: -1.0 if row[0] is None else row[0])
        times = tuple(at_s for at_s, _ in rows if at_s is not None)
        if len(times) < len(rows):
            refuse(table.key("requests"), "at_s", "give each its time, or the stream a concurrency")
        if any(row.think_s for _, row in rows):
            refuse(table.key("requests"), "think_s", "pauses are of a closed loop; remove them")
    return Stream(
        name=name,
        kind="replay",
        isl=max(row.isl for _, row in rows),
        osl=max(row.osl for _, row in rows),
        concurrency=concurrency or len(rows),
        num_prompts=len(rows),
        at_s=times,
        recorded=tuple(row for _, row in rows),
        block_tokens=table.whole("block_tokens", 16),
    )


def _recorded(table: Table) -> Tuple[Optional[float], Recorded]:
    at_s = table.get("at_s")
    blocks = table.get("blocks", [])
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        refuse(table.key("blocks"), blocks, "give a list of whole numbers")
    row = Recorded(
        table.whole("isl"),
        table.whole("osl"),
        table.optional_text("conversation"),
        tuple(blocks),
        table.number("think_s", 0),
    )
    table.finish()
    return None if at_s is None else seconds(at_s, table.key("at_s")), row


def _name(table: Table) -> str:
    name = table.text("name")
    if name == "warmup" or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        refuse(table.key("name"), name, "use letters, digits, '.', '_', '-'; warmup is taken")
    return name


def _distinct(names: List[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            refuse(where, name, "give each a name of its own")
