"""The load specification: what to send, checked before anything is sent.

A LoadSpec is JSON (`schema: 1`); every error names the key, the value and the remedy.
"""

import json
import re
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple

SCHEMA = 1
MAX_COUNT = 10_000_000
RESERVED = ("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "n")


class SpecError(Exception):
    """The specification asks for something that cannot be sent; one line for people."""


class Stream(NamedTuple):
    """One kind of request: `closed` (fixed concurrency) or `at` (fixed send times, seconds)."""

    name: str
    kind: str
    isl: int
    osl: int
    concurrency: int
    num_prompts: int
    at_s: Tuple[float, ...]


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


def load_spec(path: str) -> LoadSpec:
    """Read and check the specification in the file `path`; raises SpecError."""
    try:
        with open(path, encoding="utf-8") as handle:
            raw = json.load(handle)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is not JSON ({error})") from error
    return parse_spec(raw)


def parse_spec(raw: Any) -> LoadSpec:
    """Check a decoded specification; raises SpecError naming the first bad key."""
    top = _Table(raw, "")
    if top.get("schema") != SCHEMA:
        _refuse("schema", top.get("schema"), f"this client reads schema {SCHEMA}")
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
        segments=_segments(top.get("segments")),
    )
    top.finish()
    if not spec.endpoint.startswith("/"):
        _refuse("endpoint", spec.endpoint, "give the path, e.g. /v1/completions")
    if spec.endpoint.rstrip("/").endswith("/chat/completions"):
        _refuse(
            "endpoint",
            spec.endpoint,
            "chat endpoints take no token-id prompts, without which the input length "
            "is not exact; use /v1/completions",
        )
    return spec


def _refuse(where: str, value: Any, remedy: str) -> NoReturn:
    shown = json.dumps(value, default=repr)
    raise SpecError(f"{where or 'load spec'}: {shown[:80]} is refused: {remedy}")


class _Table:
    """A JSON object whose keys are taken one by one, so that unknown ones are noticed."""

    def __init__(self, raw: Any, where: str) -> None:
        self.where = where
        if not isinstance(raw, dict):
            _refuse(where, raw, "give an object")
        self.left: Dict[str, Any] = dict(raw)

    def key(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def get(self, name: str, default: Any = None) -> Any:
        return self.left.pop(name, default)

    def text(self, name: str, default: Optional[str] = None) -> str:
        value = self.get(name, default)
        if not isinstance(value, str) or not value or not value.isprintable():
            _refuse(self.key(name), value, "give a printable text that is not empty")
        return value

    def optional_text(self, name: str) -> Optional[str]:
        return self.text(name) if self.left.get(name) is not None else self.get(name)

    def whole(self, name: str) -> int:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
            _refuse(self.key(name), value, f"give a whole number from 1 to {MAX_COUNT}")
        return value

    def number(
        self, name: str, default: Optional[float] = None, above: Optional[float] = None
    ) -> float:
        return _seconds(self.get(name, default), self.key(name), above)

    def finish(self) -> None:
        for name, value in self.left.items():
            _refuse(self.key(name), value, "this key is not known; remove it")


def _seconds(value: Any, where: str, above: Optional[float] = None) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse(where, value, "give a number of seconds")
    if not 0 <= value < 1e7 or (above is not None and value <= above):
        _refuse(where, value, "give a number of seconds in range")
    return float(value)


def _vocab(raw: Any) -> Tuple[int, int]:
    good = isinstance(raw, list) and len(raw) == 2 and all(type(value) is int for value in raw)
    if not good or not 0 <= raw[0] < raw[1] - 1 <= MAX_COUNT:
        _refuse("vocab", raw, "give [LO, HI) with at least two token ids")
    return raw[0], raw[1]


def _request(raw: Any) -> Dict[str, Any]:
    if not isinstance(raw, dict):
        _refuse("request", raw, "give an object of extra body fields")
    for name in RESERVED:
        if name in raw:
            _refuse(f"request.{name}", raw[name], "the client sets this field itself")
    try:
        json.dumps(raw, allow_nan=False)
    except ValueError:
        _refuse("request", raw, "JSON has no NaN and no infinity")
    options = raw.get("stream_options", {})
    if not isinstance(options, dict):
        _refuse("request.stream_options", options, "give an object")
    return raw


def _warmup(raw: Any) -> Optional[Segment]:
    if raw is None:
        return None
    table = _Table(raw, "warmup")
    stream = _closed(table, "warmup")
    table.finish()
    return Segment("warmup", (stream,))


def _closed(table: _Table, name: str) -> Stream:
    return Stream(
        name=name,
        kind="closed",
        isl=table.whole("isl"),
        osl=table.whole("osl"),
        concurrency=table.whole("concurrency"),
        num_prompts=table.whole("num_prompts"),
        at_s=(),
    )


def _segments(raw: Any) -> Tuple[Segment, ...]:
    if not isinstance(raw, list) or not raw:
        _refuse("segments", raw, "give a list with at least one segment")
    segments: List[Segment] = []
    for index, item in enumerate(raw):
        where = f"segments[{index}]"
        table = _Table(item, where)
        name = _name(table)
        streams = table.get("streams")
        if not isinstance(streams, list) or not streams:
            _refuse(f"{where}.streams", streams, "give a list with at least one stream")
        parsed = tuple(
            _stream(_Table(stream, f"{where}.streams[{number}]"))
            for number, stream in enumerate(streams)
        )
        _distinct([stream.name for stream in parsed], f"{where}.streams")
        table.finish()
        segments.append(Segment(name, parsed))
    _distinct([segment.name for segment in segments], "segments")
    return tuple(segments)


def _stream(table: _Table) -> Stream:
    name = _name(table)
    kind = table.get("kind")
    if kind == "closed":
        stream = _closed(table, name)
    elif kind == "at":
        times = table.get("at_s")
        if not isinstance(times, list) or not times:
            _refuse(table.key("at_s"), times, "give a list of seconds after the segment's start")
        offsets = tuple(sorted(_seconds(time, table.key("at_s")) for time in times))
        stream = Stream(
            name=name,
            kind="at",
            isl=table.whole("isl"),
            osl=table.whole("osl"),
            concurrency=len(offsets),
            num_prompts=len(offsets),
            at_s=offsets,
        )
    else:
        _refuse(table.key("kind"), kind, "give closed or at")
    table.finish()
    return stream


def _name(table: _Table) -> str:
    name = table.text("name")
    if name == "warmup" or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        _refuse(table.key("name"), name, "use letters, digits, '.', '_', '-'; warmup is taken")
    return name


def _distinct(names: List[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            _refuse(where, name, "give each a name of its own")
