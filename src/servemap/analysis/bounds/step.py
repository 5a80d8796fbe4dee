"""Bytes that a decode step reads on one card, and the tokens/s that memory bandwidth allows."""

from typing import NamedTuple

from servemap.analysis.bounds.shape import KvCache, Shape, Weights


class Split(NamedTuple):
    """How a model lies on its ranks.

    Attributes:
        tensor: ranks that share the attention of one request.
        replicas: groups of such ranks, each with requests of its own.
        pipeline: stages, one after the other.
        experts_over_replicas: whether experts are shared out over the ranks of all replicas.
        dense_over_replicas: whether the other layers beside the attention are, too.
    """

    tensor: int = 1
    replicas: int = 1
    pipeline: int = 1
    experts_over_replicas: bool = False
    dense_over_replicas: bool = False

    @property
    def ranks(self) -> int:
        """How many cards hold the model."""
        return self.tensor * self.replicas * self.pipeline


class Load(NamedTuple):
    """What is decoded: requests at a time, and tokens of a request (input, output)."""

    concurrency: float
    isl: float
    osl: float


class Step(NamedTuple):
    """One token of every request of a micro-batch, through all stages.

    Bytes are those that one card of each stage reads, added up over the stages.
    """

    weight_bytes: float
    kv_bytes: float
    micro_batch: float
    """Requests of one replica that are decoded together."""
    distinct_experts: float | None
    """Expected number of experts that a layer reads; None without experts."""

    @property
    def total_bytes(self) -> float:
        """Weights and KV cache."""
        return self.weight_bytes + self.kv_bytes


def distinct_experts(experts: int, per_token: int, tokens: float) -> float:
    """Return how many of E experts a batch of tokens takes: E (1 - (1 - k/E)^B).

    Each token takes k different ones at random, all alike.
    """
    return float(experts * (1 - (1 - per_token / experts) ** tokens))


def capped_mean(first: int, count: int, cap: int) -> float:
    """Return the mean of min(n, cap) over `count` whole numbers n from `first` on."""
    below = max(min(count, cap - first + 1), 0)
    total = below * first + below * (below - 1) // 2 + (count - below) * cap
    return total / count


def kv_read_bytes(kv: KvCache, load: Load) -> float:
    """Return the bytes of one request's KV cache that a step reads, mean over its steps.

    The first token comes from the prefill; step i of the others reads the input and i tokens more.
    """
    first, count = round(load.isl) + 1, max(round(load.osl) - 1, 1)
    mean = first + (count - 1) / 2
    read = mean if kv.topk is None else capped_mean(first, count, kv.topk)
    windowed = capped_mean(first, count, kv.window) if kv.windowed else 0.0
    full = (kv.layers - kv.windowed) * read + kv.windowed * windowed
    return kv.layer_bytes * full + kv.index_bytes * kv.layers * mean


def decode_step(shape: Shape, split: Split, load: Load) -> Step:
    """Return what a step reads.

    With stages, the requests go through them in as many micro-batches, so that all stages work.
    """
    busy = min(split.replicas, load.concurrency)
    micro_batch = max(load.concurrency / (busy * split.pipeline), 1.0)
    weights, experts = _weights_read(shape.weights, shape.kv, split, micro_batch, busy)
    shares = min(split.tensor, shape.kv.heads or 1)
    return Step(weights, micro_batch * kv_read_bytes(shape.kv, load) / shares, micro_batch, experts)


def _weights_read(
    weights: Weights, kv: KvCache, split: Split, micro_batch: float, busy: float
) -> tuple[float, float | None]:
    group = split.tensor * split.replicas
    shares = min(split.tensor, kv.heads or 1)
    read = weights.split_attention / split.tensor + weights.own_attention
    read += weights.kv_projection / shares
    over = group if split.dense_over_replicas else split.tensor
    read += (weights.dense + weights.head) / over
    if not weights.experts:
        return read, None
    tokens = micro_batch * busy if split.experts_over_replicas else micro_batch
    distinct = distinct_experts(weights.experts, weights.per_token, tokens)
    ranks = group if split.experts_over_replicas else split.tensor
    return read + weights.expert_layers * distinct * weights.expert / ranks, distinct


def bound_tokens_per_s(step: Step, load: Load, bytes_per_s: float) -> float:
    """Return the tokens/s of all requests that a card's memory bandwidth allows while decoding."""
    return load.concurrency * bytes_per_s / step.total_bytes
