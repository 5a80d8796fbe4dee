"""The result file of `vllm bench serve --save-result --save-detailed`, after vLLM 0.32.0.

One JSON object: a summary and lists with one entry a request. Of a request that failed the error is
not empty, or, where the server only refused it without a word, no first token was timed.
`start_times` are of `time.perf_counter`, in seconds. The length of an answer is the server's usage;
where it sent none, the client counts the text with its own tokenizer and does not say so.
"""

from collections.abc import Mapping
from typing import Any

from servemap.model.errors import ParseError
from servemap.model.files import parse_json
from servemap.parsers.clients.records import (
    REMEDY,
    ClientCall,
    ClientRun,
    blanks,
    count,
    file_of,
    lists_of,
    numbers,
    seconds,
)
from servemap.parsers.values import sequence, text

RESULT = "result.json"
FILES = (RESULT,)
LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
MORE_LISTS = ("latencies", "start_times", "queue_times")
"""Lists that older versions do not write."""


def parse(files: Mapping[str, bytes]) -> ClientRun:
    """Return the run that the result file holds.

    Args:
        files: contents by name, `FILES`.

    Raises:
        ParseError: there is none, it was cut, or it holds no single requests.
    """
    data = file_of(files, RESULT)
    try:
        record = parse_json(data)
    except ValueError as error:
        raise ParseError(f"{RESULT} is not whole JSON: {error}", RESULT, REMEDY) from error
    if not isinstance(record, dict):
        raise ParseError(f"{RESULT} holds no object", RESULT, REMEDY)
    return parse_record(record, RESULT)


def parse_record(record: Mapping[str, Any], where: str) -> ClientRun:
    """Return the run of a decoded result; ParseError where its lists are missing or differ."""
    lists = lists_of(record, LISTS, MORE_LISTS, where)
    calls = [
        _call(index, {name: values[index] for name, values in lists.items()})
        for index in range(len(lists["ttfts"]))
    ]
    held = [seconds(value) for value in lists.get("queue_times", [])]
    arrivals = [
        call.start_s - held_s
        for call, held_s in zip(calls, held, strict=False)
        if call.start_s is not None and held_s is not None
    ]
    first = min((call.start_s for call in calls if call.start_s is not None), default=None)
    return ClientRun(
        calls,
        numbers(record),
        seconds(record.get("duration")),
        queue_s=max(first - min(arrivals), 0.0) if first is not None and arrivals else 0.0,
        blank=blanks(record),
    )


def _call(index: int, fields: Mapping[str, Any]) -> ClientCall:
    error = text(fields.get("errors"))
    ttft_s = seconds(fields.get("ttfts"))
    gaps = [seconds(gap) for gap in sequence(fields.get("itls"))]
    known = tuple(gap for gap in gaps if gap is not None)
    counted = error == "" and bool(ttft_s) and len(known) == len(gaps)
    output = count(fields.get("output_lens"))
    latency_s = seconds(fields.get("latencies"))
    if latency_s is None and counted and ttft_s is not None:
        # The client's own definition: the last chunk that it took for a token.
        latency_s = ttft_s + sum(known)
    return ClientCall(
        id=str(index),
        counted=counted,
        error=None if counted else _last_line(error) or _without_a_word(ttft_s),
        start_s=seconds(fields.get("start_times")),
        ttft_s=ttft_s if counted else None,
        latency_s=latency_s if counted else None,
        gaps_s=known if counted else (),
        input_tokens=count(fields.get("input_lens")),
        output_tokens=output if counted else None,
        own_tokens=output if counted else None,
    )


def _last_line(error: str | None) -> str | None:
    """Return the last line of a traceback, which names the error."""
    lines = (error or "").strip().splitlines()
    return lines[-1].strip() if lines else None


def _without_a_word(ttft_s: float | None) -> str:
    """Return why a request without an error is no success: it has no first token, or no number."""
    refused = "the server refused it without a word"
    return refused if ttft_s == 0 else "what the client wrote of it is damaged"
