"""What a server spec says of the model and of how it is split, for the bound."""

from collections.abc import Mapping
from typing import Any

from servemap.analysis.bounds.known import NotKnownError, table
from servemap.analysis.bounds.quantisation import kv_value_bytes, value_bytes
from servemap.analysis.bounds.shape import Shape, architecture, read_shape
from servemap.analysis.bounds.step import Split
from servemap.parsers.values import integer, mapping, sequence, text

CONFIG = "config.json"
QUANTISED_APART = "hf_quant_config.json"
ENGINES = ("vllm", "sglang")
FEWER = 1.02
"""By how much the counted weights may exceed the files' before the count is taken to be wrong."""


def server_options(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's free arguments by their names as the command line has them."""
    return {
        str(name).lstrip("-").replace("_", "-"): value
        for name, value in mapping(server.get("args")).items()
    }


def refuse_unknown(server: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse servers whose steps config.json does not describe.

    Raises:
        NotKnownError: says what of it.
    """
    if server.get("attach"):
        raise NotKnownError("an attached server does not say how its model is split")
    if server.get("engine") not in ENGINES:
        raise NotKnownError(f"the engine {server.get('engine')} does not read config.json")
    settings = mapping(server.get("settings"))
    if any(settings.get(f"speculative_{key}") for key in ("method", "model", "tokens")):
        raise NotKnownError("speculative decoding gives several tokens a step")
    for option, why in table("models")["unknown_with"].items():
        if options.get(option) not in (None, False, 1):
            raise NotKnownError(f"{why} ({option})")


def split_of(server: Mapping[str, Any], options: Mapping[str, Any]) -> Split:
    """Return how a server's model lies on its ranks.

    vLLM shares the experts out over the ranks of all data-parallel replicas; SGLang does with
    attention that is data parallel (`attn-dp-size`, formerly `enable-dp-attention`), where the
    replicas lie within the ranks of tensor parallelism.

    Raises:
        NotKnownError: the sizes do not fit each other.
    """
    sizes = {
        name: integer(mapping(server.get("topology")).get(name)) or 1 for name in ("tp", "dp", "pp")
    }
    tensor, replicas, vllm = sizes["tp"], sizes["dp"], server.get("engine") == "vllm"
    within = not vllm and options.get("enable-dp-attention") is True
    attention = integer(options.get("attn-dp-size")) or 1
    if not vllm and attention > 1:
        within, replicas = True, attention
    if within and tensor % replicas:
        raise NotKnownError(f"tp {tensor} is no multiple of dp {replicas}")
    tensor = tensor // replicas if within else tensor
    return Split(tensor, replicas, sizes["pp"], vllm or within, within)


def model_files(facts: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    """Return the frozen records of a model's files by name.

    Raises:
        NotKnownError: the facts do not have that model.
    """
    for model in map(mapping, sequence(mapping(facts.get("models")).get("models"))):
        if model.get("path") == path:
            return {str(one.get("name")): one for one in map(mapping, sequence(model.get("files")))}
    raise NotKnownError("the frozen facts do not have the model")


def model_shape(server: Mapping[str, Any], facts: Mapping[str, Any], path: str) -> Shape:
    """Return what a decode step of a server reads of its model.

    Args:
        server: the resolved server spec.
        facts: frozen facts of its head.
        path: of the model, as in the campaign.

    Raises:
        NotKnownError: the reason why it is not known.
    """
    options = server_options(server)
    refuse_unknown(server, options)
    files = model_files(facts, path)
    record = mapping(files.get(CONFIG))
    config = mapping(record.get("config"))
    if not config:
        why = text(record.get("config_error"))
        raise NotKnownError(
            f"config.json cannot be read: {why}"[:160]
            if why
            else "the frozen facts hold no config.json of the model"
        )
    architecture(config)
    apart = QUANTISED_APART in files
    values = value_bytes(config, options, apart)
    asked = mapping(server.get("settings")).get("kv_dtype") or options.get("kv-cache-dtype")
    shape = read_shape(config, values, kv_value_bytes(config, asked, values.plain, apart))
    _check(shape.weights.total, files, options)
    return shape


def _check(counted: float, files: Mapping[str, Mapping[str, Any]], options: Any) -> None:
    """Refuse a count of the weights that is more than their files hold.

    Raises:
        NotKnownError: it is; the bound would be too low.
    """
    if options.get("dtype") not in (None, "auto"):
        return  # the files may be of another type
    sizes = [
        integer(one.get("size")) for name, one in files.items() if name.endswith(".safetensors")
    ]
    known = [size for size in sizes if size is not None]
    if known and counted > FEWER * sum(known):
        raise NotKnownError(
            f"config.json makes {counted / 1e9:.4g} GB of weights, "
            f"their files hold {sum(known) / 1e9:.4g} GB"
        )
