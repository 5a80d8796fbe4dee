"""Requests that a load client of others measured, as rows of requests.parquet.

Times and tokens are those that the client measured; everything that follows from them (TPOT, ITL,
flags) is made by the definitions of `requests.py`, so that rows of all clients mean the same.
Each event that a client counts is a chunk; which of them had visible text, none of them says.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from servemap.analysis.requests import Request, Requests, parse_requests
from servemap.parsers.clients.records import FLAG_AS_ASKED, ClientCall, ClientRun
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.values import integer, mapping, sequence
from servemap.telemetry.clock import LoadTimes

FLAG_NO_START = "start_not_known"


def client_requests(
    run: ClientRun,
    client: Mapping[str, Any],
    load: Mapping[str, Any],
    to_head: LoadTimes,
) -> Requests:
    """Return the measured requests.

    Args:
        run: what the client's files say.
        client: client.json, whose clock places stamps of the monotonic clock.
        load: load.json, with the planned lengths and the fields of every request.
        to_head: puts times of the client's node on the head's clock.
    """
    clock = mapping(client.get("clock"))
    wall_ns, mono_ns = integer(clock.get("wall_ns")), integer(clock.get("mono_ns"))
    epoch_ns = None if wall_ns is None or mono_ns is None else wall_ns - mono_ns
    fixed = mapping(load.get("request")).get("ignore_eos") is True
    stream = _stream(load)
    starts = [_start_ns(call, epoch_ns) for call in run.calls]
    lines = [
        JsonLine(number, {**_record(call, start or 0, stream, fixed), "id": str(number)})
        for number, (call, start) in enumerate(zip(run.calls, starts, strict=True), 1)
    ]
    measured = parse_requests(lines, {}, to_head)
    rows: list[Request] = []
    for row, call, start in zip(measured.rows, run.calls, starts, strict=True):
        flags = (*row.flags, *call.flags)
        moved = row
        if start is None:
            flags = (*flags, FLAG_NO_START)
            moved = row._replace(sent_ns=None, first_ns=None, last_ns=None)
        # What came of an answer before it failed is in no client's files.
        unseen = moved._replace(first_text_ns=None, partial_output_tokens=None)
        rows.append(unseen._replace(id=call.id, flags=flags))
    warmup = mapping(client.get("warmup"))
    return Requests(rows, integer(warmup.get("ok")) or 0, integer(warmup.get("failed")) or 0, [])


def planned_requests(load: Mapping[str, Any]) -> int | None:
    """Return how many requests the client was asked for."""
    return integer(_stream(load).get("num_prompts"))


def _stream(load: Mapping[str, Any]) -> dict[str, Any]:
    segments = sequence(load.get("segments")) or [{}]
    return mapping((sequence(mapping(segments[0]).get("streams")) or [{}])[0])


def _start_ns(call: ClientCall, epoch_ns: int | None) -> int | None:
    if call.start_ns is not None:
        return call.start_ns
    if call.start_s is None or epoch_ns is None:
        return None
    return epoch_ns + round(call.start_s * 1e9)


def _record(
    call: ClientCall, start_ns: int, stream: Mapping[str, Any], fixed: bool
) -> dict[str, Any]:
    """Return a request in the form of the load client's own records (`onnode/load_records.py`)."""
    arrivals: list[float] = []
    if call.error is None and call.ttft_s is not None:
        arrivals = list(accumulate(call.gaps_s, initial=call.ttft_s))
    asked = FLAG_AS_ASKED in call.flags
    return {
        "segment": "main",
        "stream": "main",
        "warmup": False,
        "isl": stream.get("isl"),
        "osl": stream.get("osl"),
        "sent_ns": start_ns,
        "status": "ok" if call.error is None else "failed",
        "error": None if call.error is None else {"class": "client", "message": call.error},
        "t_ns": [start_ns + round(after_s * 1e9) for after_s in arrivals],
        "kinds": "t" * len(arrivals),
        "usage": {
            # What was only asked for is no count; of answers it is one where they cannot end early.
            "prompt_tokens": None if asked else call.input_tokens,
            "completion_tokens": None if asked and not fixed else call.output_tokens,
            "cached_tokens": call.cached_tokens,
            "reasoning_tokens": call.reasoning_tokens,
        },
    }
