"""What load clients print or write at their end: the figures of each run."""

import re
from typing import Any

from servemap.parsers.cells import Number, headed, key, number, scaled
from servemap.parsers.clean import numbered
from servemap.parsers.frame import Extract, Kind, foreign
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import is_json
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

Run = dict[str, Any]

_BEGIN = re.compile(r"=+ .{0,60}Benchmark Result =+")
_RULE = re.compile(r"[=\s-]+|-+[A-Za-z][^:]{1,60}-+")
_FIGURE = re.compile(r"([A-Za-z][^:]{1,80}):\s+(\S{1,80})")
_RATES = {"tok/s": "tokens per s", "req/s": "requests per s"}
# What stands at the end of names in JSON, and the seconds of one.
_TIMES = {"_ms": 0.001, "_s": 1}
_FAMILIES = ("ttft", "tpot", "itl", "e2e", "latency")
_SUCCESSES = ("successful_requests", "completed")
# What a series of runs goes through, and what else must be alike in one experiment.
_SWEPT = ("request_rate", "max_concurrency")
_SETTINGS = (
    "backend", "model_id", "tokenizer_id", "dataset_name", "num_prompts", "burstiness",
    "random_input_len", "random_output_len", "random_range_ratio", "sharegpt_output_len",
)  # fmt: skip


def parse_bench_result(text: str) -> Extract:
    """The result of vllm bench serve, SGLang's serving bench and their forks, as text or JSON.

    `runs`, one each: its figures as {name: value}, the names as printed in lower case with `_` and
    units: `successful_requests`, `benchmark_duration_s`, `mean_ttft_s`, `p99_itl_s`,
    `output_token_throughput_tokens_per_s`; of JSON (a document, or a run a line) the names of the
    file, with `_s` for `_ms`, and without its lists of single requests. A name without a unit has
    that of the client. Infinite rates are text, `inf`. Latencies are null where no request
    succeeded, and a family of them (TTFT, TPOT, ITL, E2E) where the client printed only 0 or a
    negative one: nothing was there to measure. `not_measured` names those families.
    `repeated`: runs of a file (`at`, from 0) that have the same request rate and concurrency, with
    the settings that they differ in: several experiments in one file; none where one experiment
    was appended twice.

    Raises:
        ParseError: there is no run.
    """
    skipped: list[Skipped]
    if is_json(text):
        runs, skipped = _from_json(text)
    else:
        skipped = []
        runs = _from_text(text, skipped)
    if not runs:
        raise foreign("a load client", "heading such as `Serving Benchmark Result`")
    judged = [_judged(run) for run in runs]
    return Extract({"runs": judged, "repeated": _repeated(judged)}, skipped)


def _repeated(runs: list[Run]) -> list[dict[str, Any]]:
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, run in enumerate(runs):
        if any(name in run for name in _SWEPT):
            places.setdefault(tuple(run.get(name) for name in _SWEPT), []).append(place)
    return [
        {
            **dict(zip(_SWEPT, swept, strict=True)),
            "at": at,
            "differ_in": [name for name in _SETTINGS if len({runs[k].get(name) for k in at}) > 1],
        }
        for swept, at in places.items()
        if len(at) > 1
    ]


def _from_text(text: str, skipped: list[Skipped]) -> list[Run]:
    runs: list[Run] = []
    for line, row in ended(text, skipped):
        word = row.strip()
        if _BEGIN.fullmatch(word):
            runs.append({})
        elif runs and (found := _FIGURE.fullmatch(word)):
            runs[-1].update([_figure(*found.groups())])
        elif not _RULE.fullmatch(word):
            skipped.append(Skipped(line, "no figure of a run"))
    return [run for run in runs if run]


def _figure(name: str, cell: str) -> tuple[str, Any]:
    for unit, words in _RATES.items():
        name = name.replace(f"({unit})", words)
    if cell == "inf":
        return key(name), cell
    # The sign of a zero tells that the client subtracted what it could not.
    named, value = headed(name, cell)
    return named, -0.0 if value == 0 and cell.startswith("-") else value


def _from_json(text: str) -> tuple[list[Run], list[Skipped]]:
    rows = [row for _, row in numbered(text)]
    if len(rows) > 1 and rows[0].rstrip().endswith("}"):
        lines, skipped = parse_jsonl(text.encode())
        documents: list[Any] = [line.value for line in lines]
    else:
        document = read_document("bench-result", text)
        documents, skipped = [document.value], document.skipped
    # Python writes a rate without a limit as Infinity, which is no JSON and is read as null.
    has_infinity = "Infinity" in text
    runs = [_plain(one, has_infinity) for one in documents if isinstance(one, dict)]
    return [run for run in runs if any(map(_is_result, run))], skipped


def _is_result(name: str) -> bool:
    return name in _SUCCESSES or "throughput" in name or _family(name) is not None


def _plain(document: Run, has_infinity: bool) -> Run:
    run: Run = {}
    for printed, item in document.items():
        name = key(printed)
        if isinstance(item, dict | list):
            continue
        end = next((end for end in _TIMES if name.endswith(end) and _family(name)), None)
        if end and (value := _number(item)) is not None:
            run[f"{name.removesuffix(end)}_s"] = scaled(value, _TIMES[end])
        elif end:
            run[f"{name.removesuffix(end)}_s"] = None
        elif name == "request_rate" and item is None and has_infinity:
            run[name] = "inf"
        else:
            run[name] = item
    return run


def _number(item: Any) -> Number | None:
    if isinstance(item, bool) or not isinstance(item, int | float | str):
        return None
    return number(str(item)) if isinstance(item, str) else item


def _family(name: str) -> str | None:
    words = name.split("_")
    return next((one for one in _FAMILIES if any(word.startswith(one) for word in words)), None)


def _judged(run: Run) -> Run:
    """Return a run whose latencies are null where nothing was there to measure."""
    succeeded = next((run[name] for name in _SUCCESSES if name in run), None)
    families: dict[str, list[str]] = {}
    for name in run:
        if (family := _family(name)) and not isinstance(run[name], str):
            families.setdefault(family, []).append(name)
    absent = []
    for family, names in families.items():
        values = [run[name] for name in names if run[name] is not None]
        negative = any(str(value).startswith("-") for value in values)
        if succeeded == 0 or negative or not any(values):
            run.update(dict.fromkeys(names))
            absent.append(family)
    return {**run, "not_measured": absent}


KINDS: tuple[Kind, ...] = (
    Kind(
        "bench-result",
        parse_bench_result,
        "vllm bench serve, python -m sglang.bench_serving",
        "recorded results of vLLM 0.6 to 0.32 and of SGLang",
    ),
)
