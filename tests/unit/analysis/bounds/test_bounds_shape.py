"""Weights and KV cache from config.json, against values made by hand and engines' own logs."""

import os
from pathlib import Path

import pytest
from modelconfigs import (
    DEEPSEEK_V32,
    QWEN2_7B,
    QWEN3_30B_A3B,
    QWEN25_14B_AWQ,
    SPARSE,
    TINY,
    TINY_MLA,
    TINY_MOE,
)

from servemap.analysis.bounds.known import NotKnownError
from servemap.analysis.bounds.quantisation import ValueBytes, kv_value_bytes, value_bytes
from servemap.analysis.bounds.shape import read_shape
from servemap.engines import sglang_log, vllm_log
from tests.parts import need

BF16 = ValueBytes(2, 2)


def test_dense_gqa_by_hand():
    weights, kv = read_shape(TINY, BF16, 2)
    # A layer: q and o 2 x 8 x 8 = 128, k and v 2 x 8 x 4 = 64, MLP 3 x 8 x 16 = 384 values.
    assert weights.split_attention == 2 * 2 * 128
    assert weights.kv_projection == 2 * 2 * 64
    assert weights.dense == 2 * 2 * 384
    assert (weights.head, weights.embedding) == (160, 160)
    assert weights.total == 2 * (2 * (128 + 64 + 384) + 160)
    # Keys and values: 2 heads of 2, 2 bytes each, 2 layers.
    assert kv.token_bytes == 2 * 2 * 2 * 2 * 2
    assert kv.heads == 2


def test_tied_embeddings_are_one_table():
    weights, _ = read_shape({**TINY, "tie_word_embeddings": True}, BF16, 2)
    assert (weights.head, weights.embedding) == (160, 0)


def test_moe_by_hand():
    weights, _ = read_shape(TINY_MOE, BF16, 2)
    assert weights.dense == 2 * 2 * 8 * 4  # routers only
    assert weights.expert == 2 * 3 * 8 * 16
    assert (weights.experts, weights.per_token, weights.expert_layers) == (4, 2, 2)


def test_mla_by_hand():
    weights, kv = read_shape(TINY_MLA, BF16, 2)
    # A layer: q_b 4 x 2 x 5 = 40, kv_b 6 x 2 x 8 = 96, o 2 x 5 x 8 = 80; q_a 32, kv_a 8 x 8 = 64.
    assert weights.split_attention == 2 * 3 * (40 + 96 + 80)
    assert weights.own_attention == 2 * 3 * (32 + 64)
    # One dense layer 3 x 8 x 16; two with a shared expert 3 x 8 x 4 and a router 8 x 8.
    assert weights.dense == 2 * (384 + 2 * (96 + 64))
    assert (weights.expert, weights.expert_layers) == (2 * 96, 2)
    assert kv.token_bytes == 3 * (6 + 2) * 2
    assert kv.heads is None


def test_sparse_attention_adds_an_index():
    weights, kv = read_shape(SPARSE, BF16, 2)
    plain, _ = read_shape(TINY_MLA, BF16, 2)
    # wq_b 4 x 2 x 4 = 32, wk and the heads' weights 8 x (4 + 2) = 48.
    assert weights.own_attention - plain.own_attention == 2 * 3 * (32 + 48)
    assert (kv.topk, kv.index_bytes) == (16, 4)


@pytest.mark.parametrize(
    ("change", "windowed"),
    [
        ({"model_type": "mistral", "sliding_window": 5}, 2),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "qwen2", "sliding_window": 5, "max_window_layers": 1}, 0),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 5,
                "max_window_layers": 1,
                "use_sliding_window": True,
            },
            1,
        ),
        (
            {
                "model_type": "qwen3",
                "sliding_window": 5,
                "use_sliding_window": True,
                "layer_types": ["full_attention", "sliding_attention"],
            },
            1,
        ),
    ],
)
def test_windows(change, windowed):
    _, kv = read_shape({**TINY, **change}, BF16, 2)
    assert kv.windowed == windowed


def test_experts_in_every_other_layer():
    config = {**QWEN3_30B_A3B, "decoder_sparse_step": 2, "mlp_only_layers": [1, 2]}
    weights, _ = read_shape(config, BF16, 2)
    assert weights.expert_layers == 23  # 24 of 48, without layer 1


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({**TINY, "model_type": "mamba"}, "architecture"),
        ({}, "architecture"),
        ({**TINY, "hidden_size": "8"}, "hidden_size"),
        ({**TINY, "num_hidden_layers": True}, "num_hidden_layers"),
        ({**TINY_MOE, "num_experts_per_tok": 5}, "5 a token"),
        ({**TINY_MLA, "model_type": "deepseek_v32"}, "index_topk"),
        ({k: v for k, v in TINY_MLA.items() if k != "kv_lora_rank"}, "kv_lora_rank"),
    ],
)
def test_what_is_not_known_says_why(config, reason):
    with pytest.raises(NotKnownError, match=reason):
        read_shape(config, BF16, 2)


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({}, {}, (2, 2)),
        ({}, {"dtype": "float32"}, (4, 4)),
        ({}, {"dtype": "half"}, (2, 2)),
        ({"torch_dtype": None, "dtype": "float16"}, {}, (2, 2)),
        ({"quantization_config": {"quant_method": "fp8"}}, {}, (1, 2)),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, {}, (0.5, 2)),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "ignore": ["lm_head"],
                    "config_groups": {
                        "a": {"weights": {"num_bits": 8}},
                        "b": {"weights": {"num_bits": 4}},
                    },
                }
            },
            {},
            (0.5, 2),
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "modelopt",
                    "quant_algo": "FP8",
                    "exclude_modules": ["lm_head*"],
                }
            },
            {},
            (1, 2),
        ),
    ],
)
def test_bytes_of_a_value(change, options, expected):
    assert value_bytes({**TINY, **change}, options) == expected


@pytest.mark.parametrize(
    ("change", "options", "apart", "reason"),
    [
        ({}, {"quantization": "fp8"}, False, "when they are loaded"),
        ({}, {}, True, "hf_quant_config"),
        ({"torch_dtype": "float32"}, {}, False, "engines choose"),
        ({"torch_dtype": None}, {}, False, "dtype None"),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4, "lm_head": True}},
            {},
            False,
            "output layer",
        ),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
            {},
            False,
            "output layer",
        ),
        ({"quantization_config": {"quant_method": "quip"}}, {}, False, "quip"),
        ({"quantization_config": {"quant_method": "awq", "bits": "4"}}, {}, False, "awq"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, {}, False, "compressed"),
    ],
)
def test_quantisation_that_is_not_known(change, options, apart, reason):
    with pytest.raises(NotKnownError, match=reason):
        value_bytes({**TINY, **change}, options, apart)


def test_bytes_of_the_kv_cache():
    assert kv_value_bytes(TINY, None, 2) == 2
    assert kv_value_bytes(TINY, "auto", 4) == 4
    assert kv_value_bytes(SPARSE, "fp8_e4m3", 2) == 1
    with pytest.raises(NotKnownError, match="nvfp4"):
        kv_value_bytes(TINY, "nvfp4", 2)
    with pytest.raises(NotKnownError, match="engine chooses"):
        kv_value_bytes(SPARSE, None, 2)
    scaled = {**TINY, "quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}
    with pytest.raises(NotKnownError, match="engine's"):
        kv_value_bytes(scaled, "auto", 2)


def log(name: str) -> str:
    need("corpus")
    path = Path(os.environ["SERVEMAP_CORPUS"]) / "server_logs" / name
    return path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize(
    ("name", "config", "tokens", "close"),
    [
        # 8.68 GiB hold 94,784 tokens; 5.01 GiB hold 93,872; 10.39 GiB hold 56,736.
        ("014_vllm0102_app_err_tail.log", QWEN3_30B_A3B, 94_784, 0.001),
        ("029_dennis_7b_1gpu_log.log", QWEN2_7B, 93_872, 0.002),
        ("012_vllm013_ok.log", QWEN25_14B_AWQ, 56_736, 0.001),
    ],
)
def test_kv_bytes_a_token_are_those_of_vllms_log(name, config, tokens, close):
    said = log(name)
    assert f"KV cache size: {tokens:,} tokens" in said
    held = sum(one.kv_bytes or 0 for one in vllm_log.memory(said))
    _, kv = read_shape(config, BF16, 2)
    assert held / tokens == pytest.approx(kv.token_bytes, rel=close)


@pytest.mark.parametrize(
    ("name", "config", "low", "high"),
    [
        ("014_vllm0102_app_err_tail.log", QWEN3_30B_A3B, 0.998, 1.0),
        ("029_dennis_7b_1gpu_log.log", QWEN2_7B, 0.99, 1.0),
        # The scales and zero points of groups of 128 are left out: 20 bits to 4 x 128.
        ("012_vllm013_ok.log", QWEN25_14B_AWQ, 0.93, 1.0),
    ],
)
def test_weights_are_those_of_vllms_log_and_never_more(name, config, low, high):
    held = sum(one.weights_bytes or 0 for one in vllm_log.memory(log(name)))
    counted = read_shape(config, value_bytes(config, {}), 2).weights.total
    assert low <= counted / held <= high


def test_kv_bytes_of_mla_with_an_index_are_those_of_sglangs_log():
    said = log("017_sglang_ascend_pd_prefill_error.log")
    assert "#tokens: 67968, KV size: 5.45 GB" in said
    assert sglang_log.memory(said)
    _, kv = read_shape(DEEPSEEK_V32, BF16, 2)
    # There the index is kept in two bytes a value, and a page of 128 tokens is added.
    token = (kv.layer_bytes + 2 * kv.index_bytes) * kv.layers
    assert token * (67_968 + 128) / 2**30 == pytest.approx(5.45, abs=0.005)


def test_deepseek_has_671_billion_weights():
    plain = {k: v for k, v in DEEPSEEK_V32.items() if not k.startswith("index")}
    weights, _ = read_shape({**plain, "model_type": "deepseek_v3"}, ValueBytes(1, 1), 1)
    assert weights.total == pytest.approx(671e9, rel=0.001)
