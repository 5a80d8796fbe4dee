"""How many bytes a value of the weights has, from config.json and the server's options."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from servemap.analysis.bounds.known import NotKnownError, table
from servemap.parsers.values import mapping, sequence


class ValueBytes(NamedTuple):
    """Bytes of one value: of linear layers, and of what is never quantised (embeddings, head)."""

    linear: float
    plain: float


def value_bytes(
    config: Mapping[str, Any], options: Mapping[str, Any], quantised_apart: bool = False
) -> ValueBytes:
    """Return the bytes of values of the weights. Scales and zero points are left out.

    Args:
        config: config.json.
        options: the server's options by their names without leading dashes.
        quantised_apart: whether a file beside config.json says how the weights are quantised.

    Raises:
        NotKnownError: neither says it in a way that is known here.
    """
    plain = _plain(config, options)
    declared = mapping(config.get("quantization_config"))
    if not declared:
        asked = options.get("quantization")
        if asked:
            raise NotKnownError(f"the weights are quantised when they are loaded ({asked})")
        if quantised_apart:
            raise NotKnownError("hf_quant_config.json quantises the weights, config.json does not")
        return ValueBytes(plain, plain)
    bits = _bits(declared)
    if _may_quantise_head(declared):
        raise NotKnownError("the output layer may be quantised too")
    return ValueBytes(min(bits / 8, plain), plain)


def _plain(config: Mapping[str, Any], options: Mapping[str, Any]) -> float:
    known = table("models")["dtypes"]
    asked = options.get("dtype")
    if asked not in (None, "auto"):
        name = {"half": "float16", "float": "float32"}.get(str(asked), str(asked))
        if name not in known:
            raise NotKnownError(f"the option dtype is {name}")
        return float(known[name])
    name = str(config.get("torch_dtype") or config.get("dtype"))
    if name not in known:
        raise NotKnownError(f"config.json says dtype {name}")
    if name == "float32":
        raise NotKnownError("config.json says float32 and no dtype is asked: engines choose")
    return float(known[name])


def _may_quantise_head(declared: Mapping[str, Any]) -> bool:
    if declared.get("quant_method") in ("compressed-tensors", "modelopt"):
        spared = [*sequence(declared.get("ignore")), *sequence(declared.get("exclude_modules"))]
        return not any("lm_head" in str(name) for name in spared)
    return bool(declared.get("lm_head"))


def _bits(declared: Mapping[str, Any]) -> float:
    method = str(declared.get("quant_method"))
    bits: Any = None
    if method == "fp8":
        bits = 8
    elif method in ("awq", "gptq"):
        bits = declared.get("bits", declared.get("w_bit"))
    elif method == "mxfp4":
        bits = 4
    elif method == "compressed-tensors":
        groups = mapping(declared.get("config_groups")).values()
        found = [mapping(mapping(group).get("weights")).get("num_bits") for group in groups]
        # With several groups the fewest bits keep the bound an upper one.
        known = [one for one in found if isinstance(one, int)]
        bits = min(known) if known and len(known) == len(found) else None
    elif method == "modelopt":
        bits = {"FP8": 8, "NVFP4": 4}.get(str(declared.get("quant_algo")))
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 32:
        raise NotKnownError(f"the quantisation of config.json is not known here: {method}")
    return float(bits)


def kv_value_bytes(
    config: Mapping[str, Any], asked: Any, plain: float, other_files: bool = False
) -> float:
    """Return the bytes of one value of the KV cache.

    Args:
        config: config.json.
        asked: what the server's options say of the type of the cache, None if nothing.
        plain: bytes of a value that is not quantised.
        other_files: whether a file beside config.json says how the model is quantised.

    Raises:
        NotKnownError: the type is not known here, or the engine chooses it.
    """
    if asked not in (None, "auto"):
        known: dict[str, float] = table("models")["kv_dtypes"]
        if str(asked) not in known:
            raise NotKnownError(f"the type of the KV cache is {asked}")
        return float(known[str(asked)])
    declared = mapping(config.get("quantization_config"))
    scales = [declared.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo")]
    if other_files or any(scales):
        raise NotKnownError("the model declares scales of the KV cache: its type is the engine's")
    if "index_topk" in config:
        raise NotKnownError("with sparse attention the engine chooses the type of the KV cache")
    return plain
