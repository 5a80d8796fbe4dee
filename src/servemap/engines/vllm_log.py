"""What vLLM says about itself: its log, `/version` and the labels of a metric.

The forms are those of vLLM 0.6 (the engine called V0), 0.8.5, 0.10.1, 0.10.2, 0.13.0, 0.25.1 and
0.32.0. No endpoint that is open by default says the settings; the log does, and the gauge
`vllm:cache_config_info` those of the cache.
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
    typed,
    whole,
)

_PROCESS = re.compile(r"^\((?P<name>[A-Za-z][\w-]*?)(?:[ _]pid=\d+)?\) ")
_CONFIG = re.compile(r"Initializing an? (?:V1 )?LLM engine \(v(?P<version>[^)]+)\) with config: ")
_VERSION = re.compile(r"(?:API server version|█  version) +(?P<version>\d\S*)")
_ARGS = re.compile(r"non-default args: (?P<args>\{.*)")
_CHUNKED = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(?P<tokens>\d+)")
_KV_TOKENS = re.compile(r"\bKV cache size: (?P<tokens>[\d,]+) tokens")
_BACKEND = re.compile(
    r"Using (?:AttentionBackendEnum\.)?(?P<name>\w[\w -]*?)(?: attention)? backend"
    r"(?: out of|\.?$| on V1 engine| \(selected)"
)
_MOE_BACKEND = re.compile(r"Using '?(?P<name>[\w ]+?)'? (?:\w+ )?MoE backend\b")
_REFUSED_ON_CPU = re.compile(r"Cannot use (?:\w+\.)?\w+ backend on CPU")
_GRAPHS_OFF = re.compile(r"cudagraph_mode'?\"?: (?:<CUDAGraphMode\.NONE|0\b|'?NONE)")
_NO_GRAPHS = re.compile(r'"?use_cudagraph"?: ?false', re.IGNORECASE)
_DRAFTS = re.compile(
    r"speculative_config=SpeculativeConfig\(method='(?P<method>[^']+)', "
    r"model=(?:None|'(?P<model>[^']*)'), num_spec_tokens=(?P<tokens>\d+)\)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_NOTE = re.compile(
    r"Cannot use .+ backend|fall(?:ing)? ?back to|[Ee]nforc\w+ eager|eager mode"
    r"|Cudagraph is disabled|Skipping CUDA graph capture",
)
# What it says of any model that is asked to run eagerly, and of tokenizers and clocks.
_NO_NOTE = re.compile(r"Enforce eager set|tokenizer|Traceback")
MAX_NOTES = 5

_WEIGHTS = re.compile(r"Model loading took (?P<gib>[\d.]+) (?:GiB|GB)")
_KV = re.compile(r"Available KV cache memory: (?P<gib>[\d.]+) GiB")
_GRAPHS = re.compile(r"Graph capturing finished in .* took (?P<gib>[\d.]+) GiB")
_USAGE = re.compile(r"Actual usage is ")
_PART = re.compile(r"(?P<gib>[\d.]+) GiB for (?P<what>weight|consumed|peak activation|non-torch)")
_PARTS = {"weight": "weights", "consumed": "used", "peak activation": "peak", "non-torch": "other"}
_CPU_KV = re.compile(r"(?:Auto set|Explicitly set) \((?P<gib>[\d.]+)/[\d.]+\) GiB for KV cache")
_CPU_USED = re.compile(r"(?P<gib>[\d.]+) GiB memory was consumed by non-kv usages")
_V0_USAGE = re.compile(
    r"model weights take (?P<weights>[\d.]+)GiB; non_torch_memory takes (?P<other>[\d.]+)GiB; "
    r"PyTorch activation peak memory takes (?P<peak>[\d.]+)GiB; .*KV Cache is (?P<kv>[\d.]+)GiB"
)


def version(log_text: str, version_json: Any) -> str | None:
    """Return the version that `/version`, else the log says."""
    said = version_json.get("version") if isinstance(version_json, dict) else None
    if isinstance(said, str):
        return said
    found = _VERSION.search(log_text) or _CONFIG.search(log_text)
    return found["version"] if found else None


def settings(log_text: str, metrics: Any) -> dict[str, Any]:
    """Return the settings in force, in a campaign's words where it has one (see `Effective`).

    What only the command line holds (`max_active`, and others in some versions) is taken from the
    arguments that the server's process printed as parsed.
    """
    lines = list(plain_lines(log_text))
    config = next((line[found.end() :] for line in lines if (found := _CONFIG.search(line))), "")
    args = next(
        (printed_dict(found["args"]) for line in lines if (found := _ARGS.search(line))), {}
    )
    said = _from_config(config)
    if args:
        said |= _from_args(args, said)
    for line in lines:
        said |= _from_line(line, said)
    said |= _from_metrics(metrics)
    return {key: value for key, value in said.items() if value is not None}


def _from_config(config: str) -> dict[str, Any]:
    dtype = named_value(config, "dtype")
    chunked = named_value(config, "enable_chunked_prefill")
    if chunked is None:
        chunked = named_value(config, "chunked_prefill_enabled")
    eager = named_value(config, "enforce_eager")
    graph = None if eager is None else not eager
    if graph and (_GRAPHS_OFF.search(config) or _NO_GRAPHS.search(config)):
        graph = False
    moe = re.search(r"moe_backend='(\w+)'", config)
    return {
        "context": named_value(config, "max_seq_len"),
        "tp": named_value(config, "tensor_parallel_size"),
        "pp": named_value(config, "pipeline_parallel_size"),
        "dp": named_value(config, "data_parallel_size"),
        "kv_dtype": named_value(config, "kv_cache_dtype"),
        "prefix_cache": named_value(config, "enable_prefix_caching"),
        "chunked_prefill": chunked,
        "cuda_graph": graph,
        "moe_backend": moe[1] if moe and moe[1] != "auto" else None,
        "dtype": dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
        "quantization": named_value(config, "quantization"),
        "load_format": named_value(config, "load_format"),
        "reasoning_parser": named_value(config, "reasoning_parser") or None,
        **_drafting(config),
    }


def _drafting(config: str) -> dict[str, Any]:
    found = _DRAFTS.search(config)
    if found is None:
        return {}
    return {
        "speculative_method": found["method"],
        "speculative_model": found["model"],
        "speculative_tokens": whole(found["tokens"]),
    }


def _from_args(args: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    experts = args.get("enable_expert_parallel")
    sizes = [size for key in ("tp", "dp") if isinstance(size := said.get(key), int)]
    given = {
        "max_active": args.get("max_num_seqs"),
        "memory_fraction": args.get("gpu_memory_utilization"),
        "max_batched_tokens": args.get("max_num_batched_tokens"),
        "tool_parser": args.get("tool_call_parser"),
        "chat_template": args.get("chat_template"),
    }
    if len(sizes) == 2:
        given["ep"] = sizes[0] * sizes[1] if experts else 1
    return given


def _from_line(line: str, said: Mapping[str, Any]) -> dict[str, Any]:
    if found := _CHUNKED.search(line):
        return {"max_batched_tokens": whole(found["tokens"])}
    if found := _KV_TOKENS.search(line):
        return {"kv_tokens": whole(found["tokens"])}
    if found := _MOE_BACKEND.search(line):
        return {"moe_backend": found["name"]}
    if "Skipping CUDA graph capture" in line:
        return {"cuda_graph": False}
    if "attention_backend" in said:
        return {}
    if found := _BACKEND.search(line):
        return {"attention_backend": found["name"]}
    # Then its only other one is taken without a word.
    return {"attention_backend": "CPU_ATTN"} if _REFUSED_ON_CPU.search(line) else {}


def _from_metrics(metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, str):
        return {}
    line = next(
        (one for one in metrics.split("\n") if one.startswith("vllm:cache_config_info{")), ""
    )
    labels = {name: typed(value) for name, value in _LABEL.findall(line)}
    blocks, size = labels.get("num_gpu_blocks"), labels.get("block_size")
    tokens = labels.get("kv_cache_size_tokens")
    if tokens is None and isinstance(blocks, int) and isinstance(size, int):
        tokens = blocks * size
    found = {
        "memory_fraction": labels.get("gpu_memory_utilization"),
        "kv_dtype": labels.get("cache_dtype"),
        "prefix_cache": labels.get("enable_prefix_caching"),
        "kv_tokens": tokens,
        "block_size": size,
    }
    return {key: value for key, value in found.items() if value is not None}


def notes(log_text: str) -> tuple[str, ...]:
    """Return the first lines that say that something else is done than was asked."""
    found: dict[str, str] = {}
    for line in plain_lines(log_text):
        if _NOTE.search(line) and not _NO_NOTE.search(line):
            text = re.sub(r"^.*?\[[\w.]+:\d+\] ", "", line).strip()
            found.setdefault(text, text)
    return tuple(list(found)[:MAX_NOTES])


def memory(log_text: str) -> tuple[RankMemory, ...]:
    """Return what each process holds; a process is named as it names itself in the log."""
    ranks: dict[str, dict[str, int]] = {}
    for line in plain_lines(log_text):
        if seen := _memory_of(line):
            process = _PROCESS.match(line)
            ranks.setdefault(process["name"] if process else "engine", {}).update(seen)
    return tuple(_rank(name, ranks[name]) for name in sorted(ranks, key=by_number))


def _memory_of(line: str) -> dict[str, int]:
    """Return parts in bytes by name; `used` is the weights together with the rest."""
    if found := _V0_USAGE.search(line):
        return _bytes(found.groupdict())
    if _USAGE.search(line):
        return _bytes({_PARTS[one["what"]]: one["gib"] for one in _PART.finditer(line)})
    if found := _KV.search(line) or _CPU_KV.search(line):
        used = _CPU_USED.search(line)
        return _bytes({"kv": found["gib"], **({"used": used["gib"]} if used else {})})
    for pattern, what in ((_WEIGHTS, "weights"), (_GRAPHS, "graphs")):
        if found := pattern.search(line):
            return _bytes({what: found["gib"]})
    return {}


def _bytes(parts: Mapping[str, str]) -> dict[str, int]:
    sizes = {what: sized(gib, GIB) for what, gib in parts.items()}
    return {what: size for what, size in sizes.items() if size is not None}


def _rank(name: str, seen: Mapping[str, int]) -> RankMemory:
    weights = seen.get("weights")
    rest = [seen[what] for what in ("other", "peak") if what in seen]
    if "used" in seen:
        rest = [] if weights is None else [*rest, max(seen["used"] - weights, 0)]
    return RankMemory(
        name, weights, seen.get("kv"), seen.get("graphs"), sum(rest) if rest else None
    )
