"""The tiny random model as vLLM and SGLang load it: a folder with weights and a tokenizer.

The weights and tokens are those of `tiny_model`, so all engines serve the same model. Formats:
safetensors (its README, "Format"), and the `tokenizer.json` of the library tokenizers.
"""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servemap.engines.embedded import tiny_model as tiny

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_folder(folder: Path) -> None:
    """Write the model: architecture Qwen2, 3.7 million random weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config())
    ids: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": tiny.END, "pad_token_id": 0}
    _write_json(folder / "generation_config.json", ids)
    _write_json(folder / "tokenizer.json", tokenizer())
    first, _, end = tiny.CONTROL_TOKENS
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": first,
            "eos_token": end,
            "pad_token": first,
            "model_max_length": tiny.CONTEXT,
            "chat_template": _TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
    )
    (folder / "model.safetensors").write_bytes(weights())


def config() -> dict[str, Any]:
    """Return the model's shape under the names of the library transformers."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": tiny.HIDDEN,
        "intermediate_size": tiny.FEED_FORWARD,
        "num_hidden_layers": tiny.LAYERS,
        "num_attention_heads": tiny.HEADS,
        "num_key_value_heads": tiny.KV_HEADS,
        "vocab_size": tiny.VOCAB,
        "max_position_embeddings": tiny.CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": tiny.END,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
    }


def tokenizer() -> dict[str, Any]:
    """Return a byte-level BPE tokenizer with the tokens of `tiny_model.vocabulary`."""
    tokens, merges = tiny.vocabulary()
    bytes_as_letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, token in enumerate(tiny.CONTROL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {**bytes_as_letters, "use_regex": True},
        "post_processor": None,
        "decoder": {**bytes_as_letters, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [list(merge) for merge in merges],
        },
    }


def weights() -> bytes:
    """Return the weights as one safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, values in tiny.tensors():
        data = _bfloat16(values)
        header[hf_name(name)] = {
            "dtype": "BF16",
            "shape": list(values.shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def hf_name(name: str) -> str:
    """Return the transformers' name of a tensor that llama.cpp calls `name`."""
    *before, part, kind = name.split(".")
    prefix = f"model.layers.{before[1]}." if before else ""
    return f"{prefix}{_NAMES[part]}.{kind}"


def _bfloat16(values: NDArray[Any]) -> bytes:
    """Return numbers as bfloat16: the upper half of a float32, rounded to even."""
    raw = values.astype("<f4").view("<u4").astype(np.uint64)
    rounded = (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_folder(Path(sys.argv[1]))
