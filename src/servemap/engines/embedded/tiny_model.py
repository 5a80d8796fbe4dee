"""A tiny random model in llama.cpp's format, the same bytes each time, and where it is put."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servemap.model.errors import ServemapError

NAME = "tiny"
CONTEXT = 16384
VOCAB = 1024
HIDDEN = 256
LAYERS = 4
HEADS = 4
KV_HEADS = 2
HEAD_SIZE = HIDDEN // HEADS
FEED_FORWARD = 768
SEED = 20261

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 2
SPREAD = 0.035
"""Half the width of the weights' uniform distribution: a standard deviation of 0.02."""

PACKAGE = Path(__file__).parent / "llamaserve"


@dataclass(frozen=True)
class Installed:
    """What `install` left in place: files that it wrote, and older ones that differ from ours."""

    model: Path
    package_root: Path
    written: list[Path]
    kept: list[Path]


def install(out: Path) -> Installed:
    """Write `OUT/tiny.gguf` and copy the server package to `OUT/engine/llamaserve/`.

    Only missing files are written: a patched copy of the package stays as it is and is named
    in `kept`.

    Raises:
        ServemapError: the writer of the model format is not installed.
    """
    model = out / f"{NAME}.gguf"
    root = out / "engine"
    written: list[Path] = []
    kept: list[Path] = []
    if not model.exists():
        out.mkdir(parents=True, exist_ok=True)
        temporary = out / f".{model.name}.tmp"
        write_model(temporary)
        temporary.replace(model)
        written.append(model)
    target = root / PACKAGE.name
    target.mkdir(parents=True, exist_ok=True)
    for source in sorted(PACKAGE.glob("*.py")):
        copy = target / source.name
        if not copy.exists():
            shutil.copyfile(source, copy)
            written.append(copy)
        elif copy.read_bytes() != source.read_bytes():
            kept.append(copy)
    return Installed(model, root, written, kept)


def byte_symbols() -> list[str]:
    """Return the symbol of each byte value in a byte-level BPE vocabulary (GPT-2's mapping).

    Printable bytes of Latin-1 stand for themselves, the others for U+0100 upwards, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    symbols: list[str] = []
    others = 0
    for value in range(256):
        if value in printable:
            symbols.append(chr(value))
        else:
            symbols.append(chr(0x100 + others))
            others += 1
    return symbols


def vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Return the tokens and the merges: control tokens, bytes, pairs and triples of letters."""
    symbols = byte_symbols()
    letters = [symbols[value] for value in b"etaoinshrdlcumwfgypbvk "]
    tokens = [*CONTROL_TOKENS, *symbols]
    merges: list[tuple[str, str]] = []
    pairs = [(first, second) for first in letters for second in letters]
    triples = [("".join(pair), letter) for pair in pairs[:23] for letter in letters]
    for merge in pairs + triples:
        if len(tokens) == VOCAB:
            break
        tokens.append("".join(merge))
        merges.append(merge)
    return tokens, merges


def silent_tokens() -> list[int]:
    """Return the ids that the model must not produce: control tokens and bytes outside ASCII text.

    The server holds back text until its UTF-8 is whole, so such a byte would join the arrival of
    two tokens, and an end token would shorten the answer.
    """
    first = len(CONTROL_TOKENS)
    text = set(range(0x20, 0x7F))
    return [*range(first), *(first + value for value in range(256) if value not in text)]


def write_model(path: Path) -> None:
    """Write the model: architecture Qwen2, 3.7 million random weights in half precision.

    Raises:
        ServemapError: the writer of the model format is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise ServemapError(
            "the package gguf is not installed", str(path), "pip install 'servemap[embedded]'"
        ) from error
    tokens, merges = vocabulary()
    kinds = [
        gguf.TokenType.CONTROL if index < len(CONTROL_TOKENS) else gguf.TokenType.NORMAL
        for index in range(VOCAB)
    ]
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name(NAME)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    for name, values in tensors():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors() -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the weights by their names in llama.cpp's format, always the same numbers."""
    # Raw bits, because numpy keeps their stream the same between versions, unlike its floats.
    bits = np.random.PCG64(SEED)

    def random(rows: int, columns: int) -> NDArray[np.float16]:
        raw = bits.random_raw(rows * columns // 4).view(np.uint16).reshape(rows, columns)
        return ((raw.astype(np.float32) / 65535 * 2 - 1) * SPREAD).astype(np.float16)

    def vector(size: int, value: float) -> NDArray[np.float32]:
        return np.full(size, value, dtype=np.float32)

    # The first channel is the same for all tokens and so survives the layers: a bias for the
    # output, which Qwen2 has none of.
    embedding = random(VOCAB, HIDDEN)
    embedding[:, 0] = 1
    output = random(VOCAB, HIDDEN)
    output[:, 0] = 0
    output[silent_tokens(), 0] = -4
    yield "token_embd.weight", embedding
    yield "output_norm.weight", vector(HIDDEN, 1)
    yield "output.weight", output
    for layer in range(LAYERS):
        prefix = f"blk.{layer}"
        yield f"{prefix}.attn_norm.weight", vector(HIDDEN, 1)
        yield f"{prefix}.ffn_norm.weight", vector(HIDDEN, 1)
        for name, size in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{prefix}.attn_{name}.weight", random(size * HEAD_SIZE, HIDDEN)
            yield f"{prefix}.attn_{name}.bias", vector(size * HEAD_SIZE, 0)
        yield f"{prefix}.attn_output.weight", random(HIDDEN, HEADS * HEAD_SIZE)
        yield f"{prefix}.ffn_gate.weight", random(FEED_FORWARD, HIDDEN)
        yield f"{prefix}.ffn_up.weight", random(FEED_FORWARD, HIDDEN)
        yield f"{prefix}.ffn_down.weight", random(HIDDEN, FEED_FORWARD)
