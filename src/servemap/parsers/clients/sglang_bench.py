"""The result file of SGLang's serving bench with `--output-details`, after 0.5.23.

JSON lines, one a run, appended; `request_rate` may be the word Infinity, which JSON does not have.
Of a request there are TTFT and gaps, no stamp of its start and no latency of its own. On
OpenAI-compatible routes the client asks for no usage, so the length of an answer is the length that
was asked for. A request that was answered without a token counts as a success with TTFT 0.
"""

from collections.abc import Mapping
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.clients.records import (
    FLAG_AS_ASKED,
    FLAG_NO_TOKEN,
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
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import sequence, text

RESULT = "result.jsonl"
FILES = (RESULT,)
LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
NATIVE = ("sglang", "sglang-native")
"""Backends whose answers carry the server's own count of tokens."""


def parse(files: Mapping[str, bytes]) -> ClientRun:
    """Return the only run that the result file holds.

    Args:
        files: contents by name, `FILES`.

    Raises:
        ParseError: there is none, it was cut, it holds several runs or no single requests.
    """
    content = parse_jsonl(file_of(files, RESULT))
    if content.skipped:
        first = content.skipped[0]
        raise ParseError(f"{RESULT} line {first.line}: {first.reason}", RESULT, REMEDY)
    if len(content.lines) != 1:
        raise ParseError(f"{RESULT} holds {len(content.lines)} runs, not one", RESULT, REMEDY)
    return parse_record(content.lines[0].value, RESULT)


def parse_record(record: Mapping[str, Any], where: str) -> ClientRun:
    """Return the run of one line; ParseError where its lists are missing or differ in length."""
    lists = lists_of(record, LISTS, (), where)
    native = record.get("backend") in NATIVE
    calls = [
        _call(index, {name: values[index] for name, values in lists.items()}, native)
        for index in range(len(lists["ttfts"]))
    ]
    return ClientRun(calls, numbers(record), seconds(record.get("duration")), blank=blanks(record))


def _call(index: int, fields: Mapping[str, Any], native: bool) -> ClientCall:
    error = text(fields["errors"])
    counted = error == ""
    ttft_s = seconds(fields["ttfts"])
    gaps = [seconds(gap) for gap in sequence(fields["itls"])]
    came = counted and bool(ttft_s) and None not in gaps
    output = count(fields["output_lens"])
    flags = () if native else (FLAG_AS_ASKED,)
    if counted and not came:
        flags = (*flags, FLAG_NO_TOKEN)
    failed = None if came else ((error or "").strip().splitlines() or ["no token came"])[-1]
    return ClientCall(
        id=str(index),
        counted=counted,
        error=failed,
        ttft_s=ttft_s if counted else None,
        gaps_s=tuple(gap for gap in gaps if gap is not None) if counted else (),
        input_tokens=count(fields["input_lens"]),
        output_tokens=output if came else None,
        own_tokens=output if counted else None,
        flags=flags if counted else (),
    )
