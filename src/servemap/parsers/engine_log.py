"""The lines in which vLLM and SGLang say again and again how much they do."""

import re
from typing import Any

from servemap.parsers.cells import is_missing, key, number, quantity
from servemap.parsers.frame import Extract, Kind, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_VLLM = re.compile(
    r"(?:[A-Z]+ (?P<time>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) \[[^\]]{1,80}\] )?"
    r"(?:Engine (?P<rank>\d{1,6}): )?(?P<figures>Avg prompt throughput: .{1,600})"
)
_SGLANG = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<rank>(?: [A-Z]{2,4}\d{1,5}){0,5})\] )?"
    r"(?P<phase>Prefill|Decode|Mixed) batch[.,] (?P<figures>#.{1,600})"
)
_WORDS = {"True": True, "False": False}
_UNITS = {"tokens/s": "tokens_per_s", "%": "percent", "reqs": "requests"}


def parse_engine_log(text: str) -> Extract:
    """The throughput lines in the log of vLLM or SGLang.

    `samples`, one a line: `line`, `engine`, `time` (the node's local time as printed, null where
    the line has none), `rank` (`000` of `Engine 000`, `TP0`, else null), `phase` (`prefill`,
    `decode`; null of vLLM), and `figures` as printed in lower case with `_` and units:
    `avg_generation_throughput_tokens_per_s`, `running_requests`, `gpu_kv_cache_usage_percent`;
    `running_req`, `token_usage`, `gen_throughput_tokens_per_s`. A rate of SGLang's is over the time
    since the line before it: the first one after an idle time says little. All other lines of the
    log are passed over.

    Raises:
        ParseError: there is no such line.
    """
    samples: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    for line, row in ended(text, skipped):
        if found := _VLLM.search(row) if "Avg prompt throughput: " in row else None:
            samples.append({**_head(line, "vllm", found), "phase": None, **_figures(found)})
        elif found := _SGLANG.search(row) if " batch" in row else None:
            phase = found["phase"].casefold()
            samples.append({**_head(line, "sglang", found), "phase": phase, **_figures(found)})
    if not samples:
        raise foreign("vLLM or SGLang", "line with its throughput")
    return Extract({"samples": samples}, skipped)


def _head(line: int, engine: str, found: re.Match[str]) -> dict[str, Any]:
    rank = (found["rank"] or "").strip() or None
    return {"line": line, "engine": engine, "time": found["time"], "rank": rank}


def _figures(found: re.Match[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for pair in found["figures"].rstrip(".").split(", "):
        name, colon, cell = pair.partition(": ")
        if colon and key(name):
            named, value = _figure(name.replace("(token/s)", "tokens per s"), cell.strip())
            figures[named] = value
    return {"figures": figures}


def _figure(name: str, cell: str) -> tuple[str, Any]:
    if cell in _WORDS:
        return key(name), _WORDS[cell]
    found = quantity(cell)
    if found and found.unit in _UNITS:
        return f"{key(name)}_{_UNITS[found.unit]}", found.value
    value = number(cell)
    return key(name), value if value is not None else None if is_missing(cell) else cell


KINDS: tuple[Kind, ...] = (
    Kind(
        "engine-log",
        parse_engine_log,
        "vllm serve, python -m sglang.launch_server",
        "recorded logs of vLLM 0.8 to 0.25 and of SGLang 0.2 to 0.5",
    ),
)
