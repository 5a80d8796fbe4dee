"""Recorded traffic: the lengths of requests, their times and what they share, from one file.

Texts are not replayed: prompts are random token ids that share as much as the recorded ones did.
The turns of a conversation begin alike, each with the whole prompt before it; prompts with the same
leading hash ids have the same leading blocks.
"""

import hashlib
import heapq
from typing import Any, Dict, List, NamedTuple, Optional

from .checked import MAX_COUNT
from .load_trace_formats import Format
from .load_trace_rows import Json, Reader, Row, TraceError

LONGEST_S = 1e7
"""Longest that a time or a pause may be, as in a load specification."""


class Caps(NamedTuple):
    """How a trace is fitted: longest lengths in tokens, most requests, and its times.

    Times are divided by `speed`, pauses multiplied by `think`. A unit of time of `timestamp_s`
    seconds and a block of `block_tokens` tokens stand in for those of the trace's form.
    """

    isl: Optional[int] = None
    osl: Optional[int] = None
    requests: Optional[int] = None
    timestamp_s: Optional[float] = None
    speed: float = 1.0
    think: float = 0.0
    block_tokens: Optional[int] = None


class Trace(NamedTuple):
    """What a file holds, fitted.

    - form: the name of its form
    - sha256: of the whole file
    - requests: as a load specification holds them (`isl`, `osl`, and where known `at_s` from the
      first one on, `think_s`, `conversation`, `blocks`)
    - left_out: requests that had failed when they were recorded
    - block_tokens: tokens of a block
    """

    form: str
    sha256: str
    requests: List[Json]
    left_out: int
    block_tokens: int


def read_trace(path: str, caps: Caps) -> Trace:
    """Return the requests of a trace in the order of the file.

    A longer prompt is cut at its end, so what it shares stays shared. Before a turn of a
    conversation comes the pause that the trace gives, else the time from the end of the turn before
    (from its arrival, where the trace does not tell how long it took) to its own arrival.

    Raises TraceError naming the line that is wrong.
    """
    reader = Reader(path, caps.requests, caps.timestamp_s)
    digest = hashlib.sha256()
    place = 0
    try:
        with open(path, "rb") as handle:
            for place, line in enumerate(handle, 1):
                digest.update(line)
                if not reader.full:
                    reader.take(line.decode("utf-8-sig" if place == 1 else "utf-8"), place)
    except UnicodeDecodeError as error:
        raise TraceError(
            "the text is not UTF-8", f"{path}, line {place}", "give the file as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise TraceError(
            f"the trace cannot be read ({said})", path, "give the path of a readable file"
        ) from error
    if reader.form is None or not reader.rows:
        raise TraceError("the trace holds no request", path, "give a file with at least one")
    _check_units(reader.form, caps, path)
    requests = _fitted(reader.rows, caps)
    longest = max(
        max(request.get("at_s", 0.0), request.get("think_s", 0.0)) for request in requests
    )
    if longest >= LONGEST_S:
        raise TraceError(
            f"its times span {longest:.3g} s, more than {LONGEST_S:.0f}",
            path,
            "replay fewer of its requests, or faster",
        )
    tokens = caps.block_tokens or reader.form.block_tokens
    return Trace(reader.form.name, digest.hexdigest(), requests, reader.left_out, tokens)


def _check_units(form: Format, caps: Caps, path: str) -> None:
    """Refuse a unit or a block's length that nothing of the trace is counted in."""
    if caps.timestamp_s is not None and form.timestamp_s is None:
        raise TraceError(
            f"a trace of the form {form.name} has dates, which timestamp_s does not change",
            path,
            "remove timestamp_s",
        )
    if caps.block_tokens is not None and "blocks" not in form.names:
        raise TraceError(
            f"a trace of the form {form.name} has no hash ids, whose blocks block_tokens measures",
            path,
            "remove block_tokens",
        )


def _fitted(rows: List[Row], caps: Caps) -> List[Json]:
    """Return requests with capped lengths, times from 0 on, and their pauses."""
    begin = min((row.at_s for row in rows if row.at_s is not None), default=0.0)
    before: Dict[str, Row] = {}
    requests: List[Json] = []
    for row in rows:
        request: Json = {
            "isl": min(row.isl, caps.isl or MAX_COUNT),
            "osl": min(row.osl, caps.osl or MAX_COUNT),
        }
        if row.at_s is not None:
            request["at_s"] = (row.at_s - begin) / caps.speed
        if row.conversation is not None:
            request["conversation"] = row.conversation
            last = before.get(row.conversation)
            pause = _pause(row, last) * caps.think if last is not None else 0.0
            if pause:
                request["think_s"] = pause
            before[row.conversation] = row
        if row.blocks:
            request["blocks"] = row.blocks
        requests.append(request)
    return requests


def _pause(row: Row, last: Row) -> float:
    """Return the seconds between the end of a turn and the next one."""
    if row.think_s is not None:
        return row.think_s
    if row.at_s is None or last.at_s is None:
        return 0.0
    return max(0.0, row.at_s - last.at_s - last.elapsed_s)


def replay_stream(trace: Trace, name: str, concurrency: Optional[int]) -> Json:
    """Return the stream of a load specification that replays a trace, the file's `name` with it.

    It is a closed loop of `concurrency` conversations at a time, or keeps the trace's times.
    """
    closed = {} if concurrency is None else {"concurrency": concurrency}
    return {
        "name": "main",
        "kind": "replay",
        **closed,
        "block_tokens": trace.block_tokens,
        "trace": {
            "name": name,
            "form": trace.form,
            "sha256": trace.sha256,
            "left_out": trace.left_out,
        },
        "requests": trace.requests,
    }


def least_s(requests: List[Json], concurrency: Optional[int]) -> float:
    """Return the seconds that a replay takes where each answer comes at once.

    In an open loop that is the last arrival; in a closed one, with `concurrency` conversations at
    a time in their order, their pauses one after the other.
    """
    if concurrency is None:
        return max((request.get("at_s", 0.0) for request in requests), default=0.0)
    pauses: Dict[Any, float] = {}
    for index, request in enumerate(requests):
        name = request.get("conversation", index)
        pauses[name] = pauses.get(name, 0.0) + request.get("think_s", 0.0)
    free = [0.0] * max(1, min(concurrency, len(pauses)))
    for pause in pauses.values():
        # The slot that is free first takes the next conversation.
        heapq.heapreplace(free, free[0] + pause)
    return max(free, default=0.0)
