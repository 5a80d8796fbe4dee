import json
import struct
from pathlib import Path

import numpy as np

from servemap.engines.embedded import tiny_hf, tiny_model


def test_weights_are_those_of_the_other_format(tmp_path: Path) -> None:
    tiny_hf.write_folder(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert len(header) == 3 + tiny_model.LAYERS * 12
    end = 0
    for name, values in tiny_model.tensors():
        entry = header[tiny_hf.hf_name(name)]
        start, end = entry["data_offsets"]
        assert entry["shape"] == list(values.shape)
        raw = np.frombuffer(data[8 + length + start : 8 + length + end], "<u2")
        found = (raw.astype("<u4") << 16).view("<f4").reshape(values.shape)
        np.testing.assert_allclose(found, values.astype("f4"), rtol=2**-8, atol=1e-7)
    assert 8 + length + end == len(data)
    assert "model.layers.3.self_attn.q_proj.bias" in header
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} <= set(header)


def test_tokens_and_merges_are_whole(tmp_path: Path) -> None:
    tiny_hf.write_folder(tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    vocab = model["vocab"]
    assert sorted(vocab.values()) == list(range(tiny_model.VOCAB))
    for first, second in model["merges"]:
        assert {first, second, first + second} <= vocab.keys()
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["vocab_size"] == tiny_model.VOCAB
    assert config["hidden_size"] == tiny_model.HIDDEN


def test_the_same_bytes_each_time() -> None:
    assert tiny_hf.weights() == tiny_hf.weights()
