"""tables/limits.csv: each decode case beside the tokens/s that memory bandwidth allows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.bounds.cards import Bandwidth, rank_bandwidth
from servemap.analysis.bounds.known import NotKnownError
from servemap.analysis.bounds.served import model_shape, server_options, split_of
from servemap.analysis.bounds.step import Load, Step, bound_tokens_per_s, decode_step
from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat, read_object
from servemap.parsers.values import mapping, number, sequence, text

KINDS = ("fixed", "mixed", "search")
"""Kinds of case whose prompts share nothing: of shared text a step may read the KV cache once."""
COLUMNS = (
    "variant",
    "case",
    "repeat",
    "attempt",
    "verdict",
    "segment",
    "concurrency",
    "isl",
    "osl",
    "mean_context",
    "ranks",
    "weight_bytes_per_step",
    "kv_bytes_per_step",
    "distinct_experts",
    "memory_bandwidth_gb_s",
    "bandwidth_source",
    "bound_tok_s",
    "decode_tok_s",
    "share_of_bound",
    "not_known",
)

Row = dict[str, Any]


class Distance(NamedTuple):
    """A decode case and its bound; `reason` says why the bound is not known."""

    repeat: Repeat
    load: Load | None
    ranks: int | None
    step: Step | None
    bandwidth: Bandwidth | None
    bound_tok_s: float | None
    decode_tok_s: float | None
    reason: str

    @property
    def share(self) -> float | None:
        """What was reached of the bound, one for all of it."""
        if self.bound_tok_s is None or self.decode_tok_s is None:
            return None
        return self.decode_tok_s / self.bound_tok_s


def distances(
    repeats: Iterable[Repeat],
    facts: Mapping[str, Mapping[str, Any]],
    declared: Mapping[str, Any],
) -> list[Distance]:
    """Return the distance of every measured repeat of a case that decodes.

    Args:
        repeats: planned repeats.
        facts: frozen facts by node.
        declared: what the campaign declares of nodes, see `declared_bandwidth`.
    """
    return [
        _distance(repeat, facts, declared)
        for repeat in repeats
        if repeat.metrics and _decodes(repeat)
    ]


def declared_bandwidth(plan_rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return {node: {"gb_s", "accelerators"}} as the planned rows carry it; the same in all."""
    found = [mapping(row.get("memory_bandwidth")) for row in plan_rows]
    return next((one for one in found if one), {})


def read_facts(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the frozen facts of a run's nodes by id, of those that can be read."""
    found = {path.stem: read_object(path)[0] for path in sorted(run_dir.glob("freeze/*.json"))}
    return {node: mapping(record.get("facts")) for node, record in found.items() if record}


def limit_rows(found: Iterable[Distance]) -> list[Row]:
    """Return the rows of tables/limits.csv; what is not known is None."""
    return [_row(one) for one in found]


def _decodes(repeat: Repeat) -> bool:
    osl = repeat.lengths.osl
    return osl is None or osl > 1


def _distance(
    repeat: Repeat, facts: Mapping[str, Mapping[str, Any]], declared: Mapping[str, Any]
) -> Distance:
    load, decoded, ranks, step, bandwidth = None, None, None, None, None
    try:
        load = _load(repeat)
        rate = pick(mapping(repeat.headline.get("metrics")), "agg_output_tps")
        # The first token of each answer comes from its prefill.
        decoded = None if rate is None else rate * (load.osl - 1) / load.osl
        spec = mapping(mapping(repeat.meta.get("spec")).get("server"))
        server = mapping(spec.get("server"))
        nodes = [str(mapping(node).get("id")) for node in sequence(spec.get("nodes"))]
        if not nodes or not server:
            raise NotKnownError("the record does not say which server it is of")
        path = text(mapping(spec.get("model")).get("path")) or ""
        if nodes[0] not in facts:
            raise NotKnownError(f"{nodes[0]} has no frozen facts")
        shape = model_shape(server, facts[nodes[0]], path)
        split = split_of(server, server_options(server))
        ranks = split.ranks
        most = number(mapping(server.get("settings")).get("max_active"))
        if most is not None:  # of one replica, in vLLM
            most *= split.replicas
            load = load._replace(concurrency=min(load.concurrency, most))
        step = decode_step(shape, split, load)
        bandwidth = rank_bandwidth(nodes, ranks, declared, facts)
    except NotKnownError as error:
        return Distance(repeat, load, ranks, step, bandwidth, None, decoded, str(error))
    bound = bound_tokens_per_s(step, load, bandwidth.bytes_per_s)
    return Distance(repeat, load, ranks, step, bandwidth, bound, decoded, "")


def _load(repeat: Repeat) -> Load:
    kind = str(repeat.spec.get("kind"))
    if kind not in KINDS:
        raise NotKnownError(f"not worked out for cases of the kind {kind}")
    concurrency = number(repeat.steady.get("concurrency"))
    if concurrency is None or concurrency < 1:
        raise NotKnownError("the case fixes no concurrency")
    block = mapping(repeat.headline.get("metrics"))
    requests = pick(block, "ok")
    tokens = [pick(block, f"tokens.{name}_actual") for name in ("input", "output")]
    if not requests or tokens[0] is None or tokens[1] is None:
        raise NotKnownError("the server did not count the tokens of every answer")
    load = Load(concurrency, tokens[0] / requests, tokens[1] / requests)
    if load.osl < 2:
        raise NotKnownError("the answers have less than two tokens")
    return load


def _row(one: Distance) -> Row:
    load, step, bandwidth = one.load, one.step, one.bandwidth
    return {
        "variant": one.repeat.variant,
        "case": one.repeat.case,
        "repeat": one.repeat.repeat,
        "attempt": one.repeat.attempt,
        "verdict": one.repeat.verdict,
        "segment": one.repeat.headline.get("name"),
        "concurrency": load and load.concurrency,
        "isl": load and load.isl,
        "osl": load and load.osl,
        "mean_context": load and load.isl + load.osl / 2,
        "ranks": one.ranks,
        "weight_bytes_per_step": step and step.weight_bytes,
        "kv_bytes_per_step": step and step.kv_bytes,
        "distinct_experts": step and step.distinct_experts,
        "memory_bandwidth_gb_s": bandwidth and bandwidth.bytes_per_s / 1e9,
        "bandwidth_source": bandwidth and bandwidth.source,
        "bound_tok_s": one.bound_tok_s,
        "decode_tok_s": one.decode_tok_s,
        "share_of_bound": one.share,
        "not_known": one.reason,
    }
