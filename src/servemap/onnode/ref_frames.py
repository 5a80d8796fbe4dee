"""What the reference server sends of an answer, and when: pure, no sockets and no clock."""

import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .ref_script import Answer

OWNER = "servemap-reference-server"
"""Said in every answer, so that nobody takes this server for an engine."""

BLOCK = 16
"""Tokens of a block of the simulated prefix cache."""

Json = Dict[str, Any]


class Frame(NamedTuple):
    """Bytes and when they are due, ns after the request was read.

    `kind` is the letter of the event that these bytes complete, as in requests.jsonl (r t k c u e
    d), or nothing; `tokens` is how many were produced by then.
    """

    due_ns: int
    data: bytes
    kind: str
    tokens: int


class Asked(NamedTuple):
    """What a request asks for; `prompt` are its tokens (ids, or words of a text)."""

    chat: bool
    stream: bool
    model: str
    max_tokens: int
    prompt: List[Any]


class PrefixCache:
    """Remembers whole blocks of prompts, as an engine's prefix cache with room for all would."""

    def __init__(self) -> None:
        self._seen: Set[int] = set()

    def cached(self, prompt: List[Any]) -> int:
        """Return how many leading tokens of `prompt` were seen before, and remember it.

        The last token is always computed, so a prompt that is wholly there lacks a block.
        """
        found, missed, key = 0, False, 0
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            key = hash((key, *prompt[end - BLOCK : end]))
            missed = missed or key not in self._seen
            if not missed and end < len(prompt):
                found = end
            self._seen.add(key)
        return found


def read_request(path: str, body: Any) -> Asked:
    """Return what the decoded body of a POST asks for; raises ValueError."""
    if not isinstance(body, dict):
        raise ValueError("the body is no object")
    chat = path.rstrip("/").endswith("/chat/completions")
    most = body.get("max_tokens", body.get("max_completion_tokens", 16))
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        raise ValueError("max_tokens is no count")
    prompt = _words_of_chat(body) if chat else body.get("prompt")
    if isinstance(prompt, str):
        prompt = prompt.split()
    if not isinstance(prompt, list):
        raise ValueError("the prompt is neither a text nor a list of token ids")
    stream = body.get("stream") is True
    return Asked(chat, stream, str(body.get("model", "")), most, [str(item) for item in prompt])


def _words_of_chat(body: Json) -> List[str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise ValueError("messages is no list of objects")
    words: List[str] = []
    if body.get("tools"):
        words += json.dumps(body["tools"]).split()
    for message in messages:
        words.append(f"<{message.get('role')}>")
        words += str(message.get("content") or "").split()
    return words


def produced(answer: Answer, asked: Asked) -> int:
    """Return how many tokens an answer brings in all."""
    return asked.max_tokens if answer.tokens is None else answer.tokens


def usage_of(answer: Answer, asked: Asked, tokens: int, cached: Optional[int]) -> Json:
    """Return usage as it stands after `tokens`."""
    given = len(asked.prompt) if answer.prompt_tokens is None else answer.prompt_tokens
    usage: Json = {
        "prompt_tokens": given,
        "completion_tokens": tokens,
        "total_tokens": given + tokens,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if answer.reasoning and answer.count_reasoning:
        reasoned = min(max(tokens - answer.hidden, 0), answer.reasoning)
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoned}
    return usage


def frames(answer: Answer, asked: Asked, cached: Optional[int]) -> Iterator[Frame]:
    """Yield the parts of a streamed answer in order, made one by one as they are asked for."""
    lines = [
        "HTTP/1.1 200 OK",
        f"Server: {OWNER}",
        "Content-Type: text/event-stream",
        "Transfer-Encoding: chunked",
        *(["Connection: close"] if answer.close else []),
    ]
    yield Frame(_ns(answer.head_ms), "\r\n".join(lines).encode("ascii") + b"\r\n\r\n", "", 0)
    if answer.role_ms is not None:
        role = _chunk(asked, {"role": "assistant", "content": ""}, "", None)
        yield Frame(_ns(answer.role_ms), _framed(_event(role)), "r", 0)
    total = produced(answer, asked)
    ends = [e for e in (answer.error_after, answer.cut_after, answer.hang_after) if e is not None]
    stop = min([total, *ends])
    due, count, number = answer.ttft_ms, 0, 0
    while count < stop:
        size = min(answer.chunk[min(number, len(answer.chunk) - 1)], stop - count)
        yield from _split(answer, number, _token_frame(answer, asked, due, count, size, cached))
        count += size
        due += answer.gap_ms[min(number, len(answer.gap_ms) - 1)]
        number += 1
    if number:
        due -= answer.gap_ms[min(number - 1, len(answer.gap_ms) - 1)]
    if answer.cut_after is None and answer.hang_after is None:
        yield from _ending(answer, asked, _ns(due), count, cached)


def _token_frame(
    answer: Answer, asked: Asked, due_ms: float, count: int, size: int, cached: Optional[int]
) -> Frame:
    """Frame of the chunk that brings `size` tokens after `count` others."""
    text = answer.text * size
    kind = "t"
    delta: Json = {"content": text}
    if count < answer.hidden:
        kind, text, delta = "r", "", {"content": ""}
    elif asked.chat and count < answer.hidden + answer.reasoning:
        kind, delta = "k", {answer.reasoning_field: text}
    elif asked.chat and count < answer.hidden + answer.reasoning + answer.tools:
        call = {"index": 0, "id": "call-0", "type": "function"}
        kind, delta = "c", {"tool_calls": [{**call, "function": {"arguments": text}}]}
    after = count + size
    finish = None
    if after == produced(answer, asked) and answer.usage != "finish":
        finish = "length" if after >= asked.max_tokens else "stop"
    chunk = _chunk(asked, delta, text, finish)
    if answer.usage == "continuous":
        chunk["usage"] = usage_of(answer, asked, after, cached)
    return Frame(_ns(due_ms), _event(chunk), kind, after)


def _ending(
    answer: Answer, asked: Asked, due_ns: int, count: int, cached: Optional[int]
) -> Iterator[Frame]:
    if answer.error_after is not None:
        fault = {"error": {"message": answer.message, "type": "server_error", "code": 500}}
        yield Frame(due_ns, _framed(_event(fault)), "e", count)
    elif answer.usage in ("final", "continuous"):
        last = _chunk(asked, {}, "", None)
        last["choices"] = []
        last["usage"] = usage_of(answer, asked, count, cached)
        yield Frame(due_ns, _framed(_event(last)), "u", count)
    elif answer.usage == "finish":
        last = _chunk(asked, {}, "", "length" if count >= asked.max_tokens else "stop")
        last["usage"] = usage_of(answer, asked, count, cached)
        yield Frame(due_ns, _framed(_event(last)), "r", count)
    if answer.done:
        yield Frame(due_ns, _framed(b"data: [DONE]\n\n"), "d", count)
    yield Frame(due_ns, b"0\r\n\r\n", "", count)


def _split(answer: Answer, number: int, frame: Frame) -> Iterator[Frame]:
    data = frame.data
    if answer.split == "none" or number >= answer.split_chunks:
        yield frame._replace(data=_framed(data))
        return
    place = len(data) // 2
    if answer.split == "character":
        wide = [index for index, byte in enumerate(data) if byte & 0xC0 == 0x80]
        place = wide[0] if wide else place
    yield Frame(frame.due_ns, _framed(data[:place]), "", frame.tokens)
    later = frame.due_ns + _ns(answer.split_ms)
    yield Frame(later, _framed(data[place:]), frame.kind, frame.tokens)


def whole_answer(answer: Answer, asked: Asked, cached: Optional[int]) -> Frame:
    """Return the answer to a request that did not ask for a stream: due with its last token."""
    count = produced(answer, asked)
    chunks, left = 0, count
    while left > 0:
        left -= answer.chunk[min(chunks, len(answer.chunk) - 1)]
        chunks += 1
    gaps = [answer.gap_ms[min(i, len(answer.gap_ms) - 1)] for i in range(max(chunks - 1, 0))]
    text = answer.text * count
    body = _chunk(asked, {}, text, "length" if count >= asked.max_tokens else "stop")
    if asked.chat:
        choice = body["choices"][0]
        del choice["delta"]
        choice["message"] = {"role": "assistant", "content": text}
        body["object"] = "chat.completion"
    body["usage"] = usage_of(answer, asked, count, cached)
    due = _ns(answer.ttft_ms + sum(gaps))
    return Frame(due, plain(200, body, answer.close), "t", count)


def plain(status: int, body: Json, close: bool = False) -> bytes:
    """Return a whole JSON response."""
    data = json.dumps(body).encode("utf-8")
    lines = [
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Refused'}",
        f"Server: {OWNER}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    ]
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + data


def refusal(answer: Answer) -> Frame:
    """Return the answer with an error status."""
    body = {"error": {"message": answer.message, "code": answer.status}}
    return Frame(_ns(answer.head_ms), plain(answer.status, body, answer.close), "", 0)


def pages(model: str) -> Dict[str, Tuple[int, Json]]:
    """Return what is answered to GET, by path; each says that this is no engine."""
    listed = {"id": model, "object": "model", "owned_by": OWNER}
    return {
        "/v1/models": (200, {"object": "list", "data": [listed]}),
        "/health": (200, {"status": "ok", "server": OWNER}),
    }


def _chunk(asked: Asked, delta: Json, text: str, finish: Optional[str]) -> Json:
    choice: Json = {"index": 0, "finish_reason": finish}
    if asked.chat:
        choice["delta"] = delta
    else:
        choice["text"] = text
    return {
        "id": "cmpl-0",
        "object": "chat.completion.chunk" if asked.chat else "text_completion",
        "created": 0,
        "model": asked.model,
        "choices": [choice],
    }


def _event(value: Json) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"


def _framed(data: bytes) -> bytes:
    """One chunk of HTTP/1.1's chunked coding (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _ns(value_ms: float) -> int:
    return int(value_ms * 1e6)
