"""What SGLang says about itself: `/server_info` (once `/get_server_info`) and its log.

The forms are those of SGLang 0.4.9, 0.5 (2025-12) and 0.5.23. Its answer holds the arguments as
it resolved them, so a value that it changed shows there; what the scheduler settled on stands in
the log's line of `max_total_num_tokens` and, in newer versions, below `internal_states`.
"""

import re
from collections.abc import Mapping
from typing import Any

from servemap.engines.base import RankMemory
from servemap.engines.log_text import (
    GIB,
    by_number,
    named_value,
    plain_lines,
    printed_dict,
    sized,
)

# Printed as an object by older versions, as a dictionary by 0.5.23.
_ARGS = re.compile(r"server_args=(?:ServerArgs\((?P<args>.*)|(?P<dict>\{.*))")
_LIMITS = re.compile(r"max_total_num_tokens=(?P<tokens>\d+)")
_RANK = re.compile(r"^\[[^\]]*?(?P<rank>(?: (?:DP|PP|TP|EP)\d+)+)\]")
_WEIGHTS = re.compile(
    r"Load weight end\..*avail mem=(?P<left>[\d.]+) GB, mem usage=(?P<gb>[\d.]+) GB"
)
_BEGIN = re.compile(r"Load weight begin\. avail mem=(?P<left>[\d.]+) GB")
_KV = re.compile(r"KV Cache is allocated\..*K size: (?P<k>[\d.]+) GB, V size: (?P<v>[\d.]+) GB")
_KV_WHOLE = re.compile(r"KV Cache is allocated\..*KV size: (?P<gb>[\d.]+) GB")
_GRAPHS = re.compile(
    r"Capture (?:[\w ]*)?cuda graph end\..*mem usage=(?P<gb>[\d.]+) GB", re.IGNORECASE
)
_END = re.compile(r"max_total_num_tokens=\d+.*available_(?P<of>[cg]pu)_mem=(?P<left>[\d.]+) GB")
_NOTE = re.compile(
    r"[Cc]uda graph is disabled|Falling back to|will fallback to|is reset to|is adjusted to"
    r"|is disabled because|might be overridden|is turned off|Disable (?:cuda|chunked|radix)",
)
_NO_NOTE = re.compile(r"nvidia-smi|UnquantizedLinearMethod|tokenizer", re.IGNORECASE)
MAX_NOTES = 5

# Name in a campaign -> name among SGLang's arguments.
_NAMES = {
    "context": "context_length",
    "tp": "tp_size",
    "dp": "dp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "memory_fraction": "mem_fraction_static",
    "max_active": "max_running_requests",
    "kv_dtype": "kv_cache_dtype",
    "attention_backend": "attention_backend",
    "moe_backend": "moe_runner_backend",
    "speculative_method": "speculative_algorithm",
    "speculative_model": "speculative_draft_model_path",
    "speculative_tokens": "speculative_num_draft_tokens",
    "tool_parser": "tool_call_parser",
    "reasoning_parser": "reasoning_parser",
    "chat_template": "chat_template",
    "page_size": "page_size",
    "dtype": "dtype",
    "quantization": "quantization",
}
_FURTHER = (
    "disable_radix_cache",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "disable_cuda_graph",
    "disable_decode_cuda_graph",
    "decode_attention_backend",
    "prefill_attention_backend",
    "enable_metrics",
    "enable_cache_report",
    "cuda_graph_config",
)
_READ = (*_NAMES.values(), *_FURTHER)


def version(info: Mapping[str, Any]) -> str | None:
    """Return the version that the server's answer says; its log does not."""
    said = info.get("version")
    return said if isinstance(said, str) else None


def settings(log_text: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in force, in a campaign's words where it has one (see `Effective`)."""
    lines = list(plain_lines(log_text))
    args = _printed(lines) | {name: info[name] for name in _READ if name in info}
    said = {key: _plain(args.get(name)) for key, name in _NAMES.items()}
    said |= _derived(args)
    limits = [line for line in lines if _LIMITS.search(line)]
    said |= _states(info, said)
    if limits:
        said |= _settled(limits[-1], said)
    elif isinstance(tokens := info.get("max_total_num_tokens"), int):
        said["kv_tokens"] = tokens
    return {key: value for key, value in said.items() if value is not None}


def _printed(lines: list[str]) -> dict[str, Any]:
    """Return the arguments that the log's line of `server_args` shows."""
    found = next((found for line in lines if (found := _ARGS.search(line))), None)
    if found is None:
        return {}
    if found["dict"]:
        return printed_dict(found["dict"])
    printed = found["args"]
    args = {name: named_value(printed, name) for name in _READ}
    if re.search(r"CudaGraphConfig\(decode=PhaseConfig\(backend='disabled'", printed):
        args["cuda_graph_config"] = {"decode": {"backend": "disabled"}}
    return args


def _states(info: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the first scheduler settled on; without a card it captures no graphs."""
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else None
    if not isinstance(state, dict):
        return {}
    found: dict[str, Any] = {}
    if isinstance(captured := state.get("decode_cuda_graph_bs"), list):
        found["cuda_graph"] = bool(captured)
    active = state.get("effective_max_running_requests_per_dp")
    if isinstance(active, int) and not isinstance(active, bool):
        found["max_active"] = active * _ranks(said)
    return found


def _ranks(said: Mapping[str, Any]) -> int:
    ranks = said.get("dp")
    return ranks if isinstance(ranks, int) else 1


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else None


def _derived(args: Mapping[str, Any]) -> dict[str, Any]:
    chunk, radix = args.get("chunked_prefill_size"), args.get("disable_radix_cache")
    said: dict[str, Any] = {}
    if isinstance(radix, bool):
        said["prefix_cache"] = not radix
    if isinstance(chunk, int):
        said["chunked_prefill"] = chunk > 0
        said["max_batched_tokens"] = chunk if chunk > 0 else _plain(args.get("max_prefill_tokens"))
    off = [args.get("disable_cuda_graph"), args.get("disable_decode_cuda_graph")]
    if any(isinstance(value, bool) for value in off):
        said["cuda_graph"] = True not in off
    if _graphs_off(args.get("cuda_graph_config")):
        said["cuda_graph"] = False
    phases = [args.get("prefill_attention_backend"), args.get("decode_attention_backend")]
    if any(isinstance(value, str) for value in phases):
        whole_name = args.get("attention_backend")
        names = dict.fromkeys(str(value or whole_name) for value in phases)
        said["attention_backend"] = "+".join(names)
    return said


def _graphs_off(config: Any) -> bool:
    """Whether decoding runs without graphs; newer versions say it phase by phase."""
    decode = config.get("decode") if isinstance(config, dict) else None
    return isinstance(decode, dict) and decode.get("backend") == "disabled"


def _settled(line: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the scheduler's line says; it counts the requests of one data-parallel rank."""
    found: dict[str, Any] = {"kv_tokens": named_value(line, "max_total_num_tokens")}
    active = named_value(line, "max_running_requests")
    if isinstance(active, int):
        found["max_active"] = active * _ranks(said)
    context = named_value(line, "context_len")
    if isinstance(context, int):
        found["context"] = context
    return found


def notes(log_text: str) -> tuple[str, ...]:
    """Return the first lines that say that something else is done than was asked."""
    found: dict[str, str] = {}
    for line in plain_lines(log_text):
        if _NOTE.search(line) and not _NO_NOTE.search(line):
            text = re.sub(r"^\[[^\]]*\] ", "", line).strip()
            found.setdefault(text, text)
    return tuple(list(found)[:MAX_NOTES])


def memory(log_text: str) -> tuple[RankMemory, ...]:
    """Return what each rank holds; a rank is named as in the log, the only one `TP0`.

    A draft model's weights, cache and graphs are counted with those of the model. All but the cache
    is what was taken from free memory meanwhile: without a card that is the machine's, from which
    other programs take too, so nothing is said of it.
    """
    ranks: dict[str, dict[str, float]] = {}
    on_card = True
    for line in plain_lines(log_text):
        named = _RANK.match(line)
        parts = ranks.setdefault(named["rank"].strip() if named else "TP0", {})
        if found := _BEGIN.search(line):
            parts.setdefault("begin", _gb(found["left"]))
        elif found := _WEIGHTS.search(line):
            _add(parts, "weights", _gb(found["gb"]))
        elif found := _KV.search(line):
            _add(parts, "kv", _gb(found["k"]) + _gb(found["v"]))
        elif found := _KV_WHOLE.search(line):
            _add(parts, "kv", _gb(found["gb"]))
        elif found := _GRAPHS.search(line):
            _add(parts, "graphs", _gb(found["gb"]))
        elif found := _END.search(line):
            parts["left"] = _gb(found["left"])
            on_card = found["of"] == "gpu"
    if not on_card:
        ranks = {
            name: {"kv": parts["kv"]} if "kv" in parts else {} for name, parts in ranks.items()
        }
    return tuple(_rank(name, ranks[name]) for name in sorted(ranks, key=by_number) if ranks[name])


def _gb(number: str) -> float:
    """Return a size in bytes: what the log calls GB is 2**30 bytes."""
    return float(sized(number, GIB) or 0)


def _add(parts: dict[str, float], what: str, size: float) -> None:
    parts[what] = parts.get(what, 0.0) + size


def _rank(name: str, parts: Mapping[str, float]) -> RankMemory:
    held = [parts[what] for what in ("weights", "kv", "graphs") if what in parts]
    rest = None
    if {"begin", "left", "weights", "kv"} <= parts.keys():
        left_over = round(parts["begin"] - parts["left"] - sum(held))
        rest = left_over if left_over >= 0 else None
    weights, kv, graphs = (
        round(parts[what]) if what in parts else None for what in ("weights", "kv", "graphs")
    )
    return RankMemory(name, weights, kv, graphs, rest)
