"""The reference server's script: which answer each request gets, checked before it listens.

A script is JSON (`schema: 1`): `model`, `seed`, `answer` (what every request gets) and `rules`
(each `when` and the keys of the answer that differ; the first that matches is taken).
"""

import random
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from .checked import MAX_COUNT, Table, number, refuse

SCHEMA = 1
FIELDS = ("reasoning_content", "reasoning")
USAGES = ["final", "continuous", "finish", "none"]
SPLITS = ["none", "middle", "character"]


class Answer(NamedTuple):
    """One answer. Times are ms after the request's last byte was read; counts are tokens.

    - status, message: other than 200, an error body with this message
    - drop: the connection is closed without a byte
    - head_ms: when the head of the response is sent
    - role_ms: when a chunk with nothing but the role is sent; None: never
    - ttft_ms, gap_ms, chunk: the first chunk, the gaps between chunks, the tokens in each; of the
      lists the last value repeats
    - capacity, queue_ms: every request in flight above `capacity` adds so many ms to ttft_ms; None:
      any number is answered at the same speed
    - tokens: all that are produced; None: the request's max_tokens
    - hidden, reasoning, tools: so many tokens come first, in this order, as empty deltas, as
      reasoning and as a tool call; the rest is text
    - text: of one token
    - usage: in a chunk of its own at the end, on every chunk and at the end, on an empty finishing
      chunk, or nowhere
    - prompt_tokens: what usage says; None: the prompt's ids or words
    - cached_tokens: what usage says; "prefix": whole blocks seen in earlier prompts; None: nothing
    - count_reasoning: whether usage tells how many tokens were reasoning
    - split, split_ms: every chunk is sent in two parts, so many ms apart, cut in its middle or
      inside its first character of several bytes; split_chunks: only so many first ones
    - error_after, cut_after, hang_after: after so many tokens, an error event with `message`, the
      connection's end, or nothing more
    - done: whether [DONE] is sent
    - close: whether the connection is closed after the answer
    """

    status: int
    message: str
    drop: bool
    head_ms: float
    role_ms: Optional[float]
    ttft_ms: float
    gap_ms: Tuple[float, ...]
    chunk: Tuple[int, ...]
    capacity: Optional[int]
    queue_ms: float
    tokens: Optional[int]
    hidden: int
    reasoning: int
    tools: int
    reasoning_field: str
    text: str
    usage: str
    prompt_tokens: Optional[int]
    cached_tokens: Union[int, str, None]
    count_reasoning: bool
    split: str
    split_ms: float
    split_chunks: int
    error_after: Optional[int]
    cut_after: Optional[int]
    hang_after: Optional[int]
    done: bool
    close: bool


class Rule(NamedTuple):
    """When an answer is given: all that is there must hold; ranges are [from, to).

    `requests` counts requests by their first try, `tries` those of one request from 0, `share` is
    the part of all requests, drawn for each from the script's seed.
    """

    requests: Optional[Tuple[int, int]]
    tries: Optional[Tuple[int, int]]
    share: Optional[float]
    answer: Answer


class Script(NamedTuple):
    """A checked script."""

    model: str
    seed: str
    answer: Answer
    rules: Tuple[Rule, ...]


def parse_script(raw: Any) -> Script:
    """Check a decoded script; raises SpecError naming the first bad key."""
    top = Table(raw, "", "script")
    if top.get("schema") != SCHEMA:
        refuse("schema", raw.get("schema"), f"this server reads schema {SCHEMA}")
    base = top.get("answer", {})
    answer = _answer(base, "answer")
    rules: List[Rule] = []
    items = top.get("rules", [])
    if not isinstance(items, list):
        refuse("rules", items, "give a list")
    for index, item in enumerate(items):
        table = Table(item, f"rules[{index}]")
        when = Table(table.get("when", {}), f"rules[{index}].when")
        share = when.get("share")
        rules.append(
            Rule(
                _range(when, "requests"),
                _range(when, "tries"),
                None if share is None else number(share, when.key("share"), 1.01, 0, "a share"),
                _answer({**base, **table.left}, table.where),
            )
        )
        when.finish()
    script = Script(
        top.text("model", "reference"), top.text("seed", "reference"), answer, tuple(rules)
    )
    top.finish()
    return script


def choose(script: Script, request_id: str, ordinal: int, attempt: int) -> Answer:
    """Return the answer to a try of a request: its number by first try, and the try's, from 0."""
    for index, rule in enumerate(script.rules):
        if rule.requests is not None and not rule.requests[0] <= ordinal < rule.requests[1]:
            continue
        if rule.tries is not None and not rule.tries[0] <= attempt < rule.tries[1]:
            continue
        if rule.share is not None:
            draw = random.Random(f"{script.seed}/{index}/{request_id}").random()
            if draw >= rule.share:
                continue
        return rule.answer
    return script.answer


def under_load(answer: Answer, in_flight: int) -> Answer:
    """Return an answer as it is given when so many requests, this one included, are in flight."""
    if answer.capacity is None or in_flight <= answer.capacity:
        return answer
    late_ms = (in_flight - answer.capacity) * answer.queue_ms
    return answer._replace(ttft_ms=answer.ttft_ms + late_ms)


def _answer(raw: Any, where: str) -> Answer:
    table = Table(raw, where)
    by_prefix = table.left.get("cached_tokens") == "prefix"
    cached = table.get("cached_tokens") if by_prefix else table.optional_whole("cached_tokens", 0)
    role_ms = table.get("role_ms")
    text = table.get("text", " tok")
    if not isinstance(text, str):
        refuse(table.key("text"), text, "give a text")
    answer = Answer(
        status=table.whole("status", 200, 200),
        message=table.text("message", "refused by the script"),
        drop=table.flag("drop", False),
        head_ms=_ms(table, "head_ms", 0),
        role_ms=None if role_ms is None else _ms_of(role_ms, table.key("role_ms")),
        ttft_ms=_ms(table, "ttft_ms", 0),
        gap_ms=tuple(_ms_of(item, table.key("gap_ms")) for item in _list(table, "gap_ms", 0)),
        chunk=tuple(_tokens_of(item, table.key("chunk")) for item in _list(table, "chunk", 1)),
        capacity=table.optional_whole("capacity", 0),
        queue_ms=_ms(table, "queue_ms", 0),
        tokens=table.optional_whole("tokens", 0),
        hidden=table.whole("hidden", 0, 0),
        reasoning=table.whole("reasoning", 0, 0),
        tools=table.whole("tools", 0, 0),
        reasoning_field=table.choice("reasoning_field", list(FIELDS), FIELDS[0]),
        text=text,
        usage=table.choice("usage", USAGES, "final"),
        prompt_tokens=table.optional_whole("prompt_tokens", 0),
        cached_tokens=cached,
        count_reasoning=table.flag("count_reasoning", True),
        split=table.choice("split", SPLITS, "none"),
        split_ms=_ms(table, "split_ms", 0),
        split_chunks=table.whole("split_chunks", MAX_COUNT, 0),
        error_after=table.optional_whole("error_after", 0),
        cut_after=table.optional_whole("cut_after", 0),
        hang_after=table.optional_whole("hang_after", 0),
        done=table.flag("done", True),
        close=table.flag("close", False),
    )
    table.finish()
    if answer.status > 599:
        refuse(table.key("status"), answer.status, "give an HTTP status")
    ends = (answer.error_after, answer.cut_after, answer.hang_after)
    if sum(end is not None for end in ends) > 1:
        refuse(where, ends, "give one of error_after, cut_after and hang_after")
    return answer


def _ms(table: Table, name: str, default: float) -> float:
    return _ms_of(table.get(name, default), table.key(name))


def _ms_of(value: Any, where: str) -> float:
    return number(value, where, 1e9, None, "a number of milliseconds")


def _tokens_of(value: Any, where: str) -> int:
    return Table({"chunk": value}, where.rpartition(".")[0]).whole("chunk")


def _list(table: Table, name: str, default: float) -> List[Any]:
    value = table.get(name, default)
    if isinstance(value, list) and not value:
        refuse(table.key(name), value, "give a value or a list of them")
    return value if isinstance(value, list) else [value]


def _range(table: Table, name: str) -> Optional[Tuple[int, int]]:
    value = table.get(name)
    if value is None:
        return None
    good = isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
    if not good or not 0 <= value[0] < value[1]:
        refuse(table.key(name), value, "give [FROM, TO), whole numbers from 0")
    return value[0], value[1]
