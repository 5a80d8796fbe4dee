"""The weights and the KV cache of a model in bytes, from its config.json.

Left out, so that less is counted than is read: norms, biases, the rows of the embedding that a step
looks up, scales of quantised weights, layers for multi-token prediction.
"""

from typing import Any, NamedTuple

from servemap.analysis.bounds.known import NotKnownError, optional, positive, table
from servemap.analysis.bounds.quantisation import ValueBytes


class Weights(NamedTuple):
    """Bytes of a model's weights by part, all layers together.

    `split_attention` is split over the ranks of tensor parallelism; `own_attention` every rank
    has whole; `kv_projection` is split as far as there are heads of keys and values.
    """

    split_attention: float
    own_attention: float
    kv_projection: float
    dense: float
    """Layers without experts, shared experts, routers."""
    expert: float
    """One expert in one layer."""
    expert_layers: int
    experts: int
    per_token: int
    """Experts that a token takes in each layer."""
    head: float
    """The output layer, read whole in every step."""
    embedding: float
    """The input's table where it is not the head's; a step reads rows of it."""

    @property
    def total(self) -> float:
        """Bytes of all of it, as files hold it."""
        return (
            self.split_attention
            + self.own_attention
            + self.kv_projection
            + self.dense
            + self.expert * self.experts * self.expert_layers
            + self.head
            + self.embedding
        )


class KvCache(NamedTuple):
    """What one token has in the KV cache."""

    layer_bytes: float
    """One token in one layer."""
    layers: int
    windowed: int
    """How many of the layers look back no further than `window`."""
    window: int
    heads: int | None
    """Heads that ranks can share out; None where each rank has the whole cache."""
    topk: int | None
    """Tokens that sparse attention reads in each layer, however long the context."""
    index_bytes: float
    """One token in one layer of the index of sparse attention, all of which is read."""

    @property
    def token_bytes(self) -> float:
        """Bytes that one more token takes, all layers together."""
        return (self.layer_bytes + self.index_bytes) * self.layers


class Shape(NamedTuple):
    """What a decode step reads of a model."""

    weights: Weights
    kv: KvCache


def architecture(config: dict[str, Any]) -> dict[str, Any]:
    """Return what the table says of a model's type.

    Raises:
        NotKnownError: it is not in the table.
    """
    name = config.get("model_type")
    known: dict[str, dict[str, Any]] = table("models")["architectures"]
    if name not in known:
        raise NotKnownError(f"the architecture is not known here: model_type {name}"[:120])
    return known[name]


def read_shape(config: dict[str, Any], values: ValueBytes, kv_bytes: float) -> Shape:
    """Return the weights and the KV cache of a model.

    Args:
        config: config.json.
        values: bytes of one value of the weights.
        kv_bytes: bytes of one value of the KV cache.

    Raises:
        NotKnownError: the architecture is not known here, or a key is missing.
    """
    known = architecture(config)
    layers, hidden = positive(config, "num_hidden_layers"), positive(config, "hidden_size")
    if known["attention"] == "mla":
        split, own, shared, kv = _mla(config, layers, hidden, kv_bytes)
    else:
        split, own, shared, kv = _gqa(config, known, layers, hidden, kv_bytes)
    dense, expert, with_experts = _feed_forward(config, known, layers, hidden)
    experts = positive(config, known["experts"]) if with_experts else 0
    per_token = positive(config, "num_experts_per_tok") if with_experts else 0
    if per_token > experts:
        raise NotKnownError(f"config.json has {experts} experts and takes {per_token} a token")
    vocabulary = positive(config, "vocab_size") * hidden * values.plain
    weights = Weights(
        split_attention=split * values.linear,
        own_attention=own * values.linear,
        kv_projection=shared * values.linear,
        dense=dense * values.linear,
        expert=expert * values.linear,
        expert_layers=with_experts,
        experts=experts,
        per_token=per_token,
        head=vocabulary,
        embedding=0.0 if config.get("tie_word_embeddings") else vocabulary,
    )
    return Shape(weights, kv)


Attention = tuple[int, int, int, KvCache]


def _gqa(
    config: dict[str, Any], known: dict[str, Any], layers: int, hidden: int, kv_bytes: float
) -> Attention:
    heads = positive(config, "num_attention_heads")
    size = optional(config, "head_dim", 0) or hidden // heads
    shared = optional(config, "num_key_value_heads", 0) or heads
    windowed, window = _windows(config, known, layers)
    kv = KvCache(2 * shared * size * kv_bytes, layers, windowed, window, shared, None, 0.0)
    return layers * 2 * hidden * heads * size, 0, layers * 2 * hidden * shared * size, kv


def _windows(config: dict[str, Any], known: dict[str, Any], layers: int) -> tuple[int, int]:
    """Return how many layers look back no further than a window, and that window."""
    kind, window = known.get("window"), optional(config, "sliding_window", 0)
    if kind is None or not window or (kind == "switched" and not config.get("use_sliding_window")):
        return 0, 0
    types = config.get("layer_types")
    if isinstance(types, list):
        if len(types) != layers or not set(types) <= {"full_attention", "sliding_attention"}:
            raise NotKnownError("config.json has layer_types that are not known here")
        return types.count("sliding_attention"), window
    if kind == "switched":
        return max(layers - positive(config, "max_window_layers"), 0), window
    return layers, window


def _mla(config: dict[str, Any], layers: int, hidden: int, kv_bytes: float) -> Attention:
    heads, rope = positive(config, "num_attention_heads"), positive(config, "qk_rope_head_dim")
    nope, value = positive(config, "qk_nope_head_dim"), positive(config, "v_head_dim")
    rank, query = positive(config, "kv_lora_rank"), optional(config, "q_lora_rank", 0)
    split = (query or hidden) * heads * (nope + rope)
    split += rank * heads * (nope + value) + heads * value * hidden
    own = hidden * query + hidden * (rank + rope)
    topk, index_bytes = None, 0.0
    if "index_topk" in config or config.get("model_type") == "deepseek_v32":
        topk, size = positive(config, "index_topk"), positive(config, "index_head_dim")
        index_heads = positive(config, "index_n_heads")
        own += query * index_heads * size + hidden * (size + index_heads)
        # One byte a value: the smallest type that an engine keeps it in.
        index_bytes = float(size)
    kv = KvCache((rank + rope) * kv_bytes, layers, 0, 0, None, topk, index_bytes)
    return layers * split, layers * own, 0, kv


def _feed_forward(
    config: dict[str, Any], known: dict[str, Any], layers: int, hidden: int
) -> tuple[int, int, int]:
    """Return values of what is always read, values of one expert, and layers that have experts."""
    if "experts" not in known:
        return layers * 3 * hidden * positive(config, "intermediate_size"), 0, 0
    sparse = _sparse_layers(config, known["dense_layers"], layers)
    plain = layers - sparse
    dense = plain * 3 * hidden * positive(config, "intermediate_size") if plain else 0
    if not sparse:
        return dense, 0, 0
    expert = 3 * hidden * positive(config, known["expert_size"])
    shared = optional(config, "n_shared_experts", 0) * expert
    router = hidden * positive(config, known["experts"])
    return dense + sparse * (shared + router), expert, sparse


def _sparse_layers(config: dict[str, Any], kind: str, layers: int) -> int:
    if kind == "none":
        return layers
    if kind == "first":
        first = optional(config, "first_k_dense_replace", 0)
        every = optional(config, "moe_layer_freq", 1) or 1
        return sum(layer >= first and layer % every == 0 for layer in range(layers))
    every, without = optional(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    return sum(
        layer not in without and every > 0 and (layer + 1) % every == 0 for layer in range(layers)
    )
