"""Recorded traffic: JSON lines with the lengths of requests, their times and what they share.

A line is `{"isl", "osl", "at_s", "conversation"}`, the last two where known, or has the fields of
public traces (as vLLM's `bench serve --dataset-name timed_trace` reads them): `timestamp`,
`input_length`, `output_length`, `hash_ids`. Texts are not replayed: prompts are random token ids
that share as much as the recorded ones did. The turns of a conversation begin alike, each with the
whole prompt before it; prompts with the same leading hash ids have the same leading blocks.
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional

from .checked import MAX_COUNT, SpecError, Table, number, refuse

Json = Dict[str, Any]
NAMES = {"timestamp": "at_s", "input_length": "isl", "output_length": "osl", "hash_ids": "blocks"}


class Caps(NamedTuple):
    """How a trace is fitted: longest lengths in tokens, most requests, and its times.

    These are divided by `speed`; a `timestamp` counts `timestamp_s` seconds.
    """

    isl: Optional[int]
    osl: Optional[int]
    requests: Optional[int]
    timestamp_s: float
    speed: float


def read_trace(path: str, caps: Caps) -> List[Json]:
    """Return the requests of a trace as a specification holds them; times begin at 0.

    A longer prompt is cut at its end, so what it shares stays shared.

    Raises SpecError naming the line that is wrong.
    """
    requests: List[Json] = []
    try:
        with open(path, encoding="utf-8") as handle:
            for place, line in enumerate(handle, 1):
                if line.strip() and (caps.requests is None or len(requests) < caps.requests):
                    requests.append(_request(line, f"{path}, line {place}", caps))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read ({error})") from error
    if not requests:
        raise SpecError(f"{path}: holds no request")
    timed = [request["at_s"] for request in requests if "at_s" in request]
    for request in requests:
        if "at_s" in request:
            request["at_s"] -= min(timed)
    return requests


def _request(line: str, where: str, caps: Caps) -> Json:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: is not JSON ({error})") from error
    if not isinstance(raw, dict):
        refuse(where, raw, "give an object")
    found = {NAMES.get(name, name): value for name, value in raw.items()}
    table = Table({name: found[name] for name in ("isl", "osl") if name in found}, where)
    request: Json = {
        "isl": min(table.whole("isl"), caps.isl or MAX_COUNT),
        "osl": min(table.whole("osl"), caps.osl or MAX_COUNT),
    }
    if found.get("at_s") is not None:
        unit = caps.timestamp_s if "timestamp" in raw else 1.0
        what = "a time that is not negative"
        request["at_s"] = (
            unit / caps.speed * number(found["at_s"], f"{where}.at_s", 1e16, None, what)
        )
    if found.get("conversation") is not None:
        request["conversation"] = str(found["conversation"])
    if found.get("blocks"):
        request["blocks"] = found["blocks"]
    return request
