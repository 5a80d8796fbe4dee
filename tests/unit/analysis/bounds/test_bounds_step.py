"""Bytes of a decode step and the bound, against values made by hand; what must be monotone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelconfigs import DEEPSEEK_V32, QWEN2_7B, QWEN3_30B_A3B, SPARSE, TINY, TINY_MLA, TINY_MOE

from servemap.analysis.bounds.quantisation import ValueBytes
from servemap.analysis.bounds.shape import Shape, read_shape
from servemap.analysis.bounds.step import (
    Load,
    Split,
    bound_tokens_per_s,
    capped_mean,
    decode_step,
    distinct_experts,
    kv_read_bytes,
)

BF16 = ValueBytes(2, 2)
LOAD = Load(4, 10, 5)
"""Four steps after the first token, with 11 to 14 tokens: 12.5 on average."""


def shape(config: dict) -> Shape:
    return read_shape(config, BF16, 2)


def test_dense_step_by_hand():
    step = decode_step(shape(TINY), Split(), LOAD)
    assert step.weight_bytes == 2 * (2 * (128 + 64 + 384) + 80)  # all but the embedding
    assert step.kv_bytes == 4 * 12.5 * 32
    assert step.distinct_experts is None
    # 2464 + 1600 bytes give four tokens.
    assert bound_tokens_per_s(step, LOAD, 4064) == 4


@pytest.mark.parametrize(
    ("tensor", "weights", "kv"),
    [
        (2, 2464 / 2, 1600 / 2),
        # Two heads of keys and values: each is on two ranks.
        (4, (2 * 256 + 2 * 768 + 160) / 4 + 2 * 128 / 2, 1600 / 2),
    ],
)
def test_tensor_parallel_by_hand(tensor, weights, kv):
    step = decode_step(shape(TINY), Split(tensor), LOAD)
    assert (step.weight_bytes, step.kv_bytes) == (weights, kv)


def test_replicas_share_out_the_requests():
    step = decode_step(shape(TINY), Split(replicas=2), LOAD)
    assert (step.weight_bytes, step.kv_bytes, step.micro_batch) == (2464, 800, 2)
    few = decode_step(shape(TINY), Split(replicas=8), LOAD)
    assert (few.weight_bytes, few.kv_bytes, few.micro_batch) == (2464, 400, 1)


def test_stages_take_micro_batches():
    step = decode_step(shape(TINY), Split(pipeline=2), LOAD)
    assert (step.weight_bytes, step.kv_bytes, step.micro_batch) == (2464, 800, 2)
    # Each of four requests gets a token once both stages have read their half.
    assert bound_tokens_per_s(step, LOAD, 3264) == 4


def test_distinct_experts_by_hand():
    assert [distinct_experts(4, 2, n) for n in (1, 2, 3)] == [2, 3, 3.5]
    assert distinct_experts(256, 8, 1) == pytest.approx(8)
    assert distinct_experts(8, 8, 1) == 8


def test_moe_step_by_hand():
    step = decode_step(shape(TINY_MOE), Split(), Load(2, 10, 5))
    assert step.distinct_experts == 3
    always = 2 * (2 * (128 + 64 + 32) + 80)
    assert step.weight_bytes == always + 2 * 3 * 768


def test_the_example_of_the_documentation():
    load = Load(16, 1024, 1024)
    step = decode_step(shape(QWEN3_30B_A3B), Split(), load)
    assert step.distinct_experts == pytest.approx(82.42, abs=0.005)
    assert step.weight_bytes / 1e9 == pytest.approx(1.812 + 0.025 + 0.622 + 37.336, abs=0.002)
    assert step.kv_bytes == 16 * 1536 * 98_304
    assert bound_tokens_per_s(step, load, 4.8e12) == pytest.approx(1819, abs=1)
    one = load._replace(concurrency=1)
    bound = bound_tokens_per_s(decode_step(shape(QWEN3_30B_A3B), Split(), one), one, 4.8e12)
    assert bound == pytest.approx(770, abs=1)


def test_experts_of_all_replicas_see_all_tokens():
    both = decode_step(
        shape(TINY_MOE), Split(replicas=2, experts_over_replicas=True), Load(2, 10, 5)
    )
    own = decode_step(shape(TINY_MOE), Split(replicas=2), Load(2, 10, 5))
    always = 2 * (2 * (128 + 64 + 32) + 80)
    assert both.weight_bytes == always + 2 * 3 * 768 / 2
    assert own.weight_bytes == always + 2 * 2 * 768


def test_mla_step_by_hand():
    step = decode_step(shape(TINY_MLA), Split(2), Load(1, 10, 5))
    assert step.kv_bytes == 12.5 * 48  # not split
    split, own, dense, head, expert = 1296, 576, 1408, 160, 192
    assert step.weight_bytes == split / 2 + own + (dense + head) / 2 + 2 * 2 * expert / 2


def test_attention_in_replicas_within_the_ranks():
    split = Split(1, 2, experts_over_replicas=True, dense_over_replicas=True)
    step = decode_step(shape(TINY_MLA), split, Load(2, 10, 5))
    assert split.ranks == 2
    assert step.kv_bytes == 12.5 * 48
    distinct = distinct_experts(8, 2, 2)
    assert step.weight_bytes == 1296 + 576 + (1408 + 160) / 2 + 2 * distinct * 192 / 2


def test_sparse_attention_reads_topk_tokens_and_the_whole_index():
    kv = shape(SPARSE).kv
    short, long = Load(1, 10, 5), Load(1, 100, 5)
    assert kv_read_bytes(kv, short) == 3 * 12.5 * (16 + 4)
    assert kv_read_bytes(kv, long) == 3 * (16 * 16 + 102.5 * 4)


def test_a_window_caps_what_its_layers_read():
    config = {**TINY, "model_type": "mistral", "sliding_window": 12}
    # Contexts 11, 12, 13, 14: a window of 12 makes 11, 12, 12, 12 of them.
    assert kv_read_bytes(shape(config).kv, Load(1, 10, 5)) == 47 / 4 * 32


@given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 900))
def test_capped_mean_is_the_mean(first, count, cap):
    expected = sum(min(n, cap) for n in range(first, first + count)) / count
    assert capped_mean(first, count, cap) == pytest.approx(expected)


MODELS = st.sampled_from([TINY, TINY_MOE, TINY_MLA, SPARSE, QWEN2_7B, QWEN3_30B_A3B, DEEPSEEK_V32])
SPLITS = st.builds(
    Split,
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 8),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
LOADS = st.builds(Load, st.integers(1, 512), st.integers(1, 200_000), st.integers(2, 20_000))


@given(MODELS, SPLITS, LOADS, st.integers(1, 512))
def test_more_requests_never_read_less_nor_lower_the_bound(config, split, load, more):
    one = decode_step(shape(config), split, load)
    busier = load._replace(concurrency=load.concurrency + more)
    two = decode_step(shape(config), split, busier)
    assert two.weight_bytes >= one.weight_bytes * (1 - 1e-9)
    assert two.kv_bytes >= one.kv_bytes * (1 - 1e-9)
    bounds = [bound_tokens_per_s(s, n, 1e12) for s, n in ((one, load), (two, busier))]
    assert bounds[1] >= bounds[0] * (1 - 1e-9)


@given(MODELS, SPLITS, LOADS, st.integers(1, 100_000))
def test_more_context_never_reads_less_kv(config, split, load, more):
    one = decode_step(shape(config), split, load)
    two = decode_step(shape(config), split, load._replace(isl=load.isl + more))
    assert two.kv_bytes > one.kv_bytes
    assert two.weight_bytes == one.weight_bytes


@given(MODELS, SPLITS, LOADS)
def test_a_bound_needs_less_than_all_weights_and_no_rank_less_than_its_share(config, split, load):
    model = shape(config)
    step = decode_step(model, split, load)
    assert 0 < step.weight_bytes <= model.weights.total
    whole = decode_step(model, Split(), load)
    assert step.total_bytes * split.tensor * split.replicas >= whole.weight_bytes * (1 - 1e-9) or (
        model.weights.experts
    )


@given(st.integers(1, 512), st.data(), st.integers(1, 4096))
def test_distinct_experts_lie_between_those_of_one_token_and_all(experts, data, tokens):
    per_token = data.draw(st.integers(1, experts))
    found = distinct_experts(experts, per_token, tokens)
    assert per_token * (1 - 1e-9) <= found <= min(experts, tokens * per_token) * (1 + 1e-9)
