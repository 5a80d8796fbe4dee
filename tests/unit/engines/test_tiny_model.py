import subprocess
from pathlib import Path

import pytest

from servemap.engines.embedded import tiny_model

gguf = pytest.importorskip("gguf", reason="the embedded engine is not installed: gguf")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tiny_model.Installed:
    return tiny_model.install(tmp_path_factory.mktemp("demo"))


def test_same_bytes_each_time(installed: tiny_model.Installed, tmp_path: Path) -> None:
    again = tiny_model.install(tmp_path)
    assert again.model.read_bytes() == installed.model.read_bytes()


def test_file_says_what_it_is(installed: tiny_model.Installed) -> None:
    reader = gguf.GGUFReader(installed.model)
    value = {name: field.contents() for name, field in reader.fields.items()}
    assert value["general.architecture"] == "qwen2"
    assert value["qwen2.context_length"] == 16384
    assert value["qwen2.block_count"] == 4
    assert len(value["tokenizer.ggml.tokens"]) == 1024
    parameters = sum(tensor.n_elements for tensor in reader.tensors)
    assert parameters == 2 * 1024 * 256 + 256 + 4 * (
        2 * 256 + 2 * 256 * 256 + 2 * 128 * 256 + 256 + 2 * 128 + 3 * 768 * 256
    )


def test_weights_are_spread_evenly(installed: tiny_model.Installed) -> None:
    reader = gguf.GGUFReader(installed.model)
    weights = next(t.data for t in reader.tensors if t.name == "blk.2.ffn_up.weight")
    assert abs(float(weights.mean())) < 5e-4
    assert float(weights.std()) == pytest.approx(0.0202, abs=2e-4)
    assert float(abs(weights).max()) <= 0.0351


def test_vocabulary_can_spell_every_byte() -> None:
    tokens, merges = tiny_model.vocabulary()
    assert len(tokens) == len(set(tokens)) == 1024
    assert len(set(tiny_model.byte_symbols())) == 256
    assert set(tiny_model.byte_symbols()) <= set(tokens)
    made = set(tiny_model.byte_symbols())
    for first, second in merges:
        assert first in made
        assert second in made
        made.add(first + second)
    assert made == set(tokens[len(tiny_model.CONTROL_TOKENS) :])


def test_byte_symbols_are_those_of_gpt2() -> None:
    symbols = tiny_model.byte_symbols()
    assert symbols[ord("A")] == "A"
    assert symbols[ord(" ")] == "\u0120"
    assert symbols[ord("\n")] == "\u010a"
    assert symbols[0xAD] == "\u0143"


def test_silent_tokens_are_control_tokens_and_bytes_that_are_no_text() -> None:
    tokens, _ = tiny_model.vocabulary()
    silent = {tokens[index] for index in tiny_model.silent_tokens()}
    symbols = tiny_model.byte_symbols()
    assert set(tiny_model.CONTROL_TOKENS) <= silent
    assert {symbols[byte] for byte in (0, 10, 127, 128, 255)} <= silent
    assert not {symbols[byte] for byte in b"azAZ09 ~"} & silent
    assert len(silent) == 3 + 256 - 95


def test_a_second_install_writes_nothing(tmp_path: Path) -> None:
    first = tiny_model.install(tmp_path)
    assert [path.name for path in first.written] == [
        "tiny.gguf",
        "__init__.py",
        "__main__.py",
        "ranks.py",
        "say.py",
        "settings.py",
    ]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = tiny_model.install(tmp_path)
    assert (second.written, second.kept) == ([], [])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_patched_copy_is_kept_and_named(tmp_path: Path) -> None:
    root = tiny_model.install(tmp_path).package_root
    settings = root / "llamaserve" / "settings.py"
    settings.write_text(settings.read_text().replace("N_UBATCH = 512", "N_UBATCH = 64"))
    (root / "llamaserve" / "__init__.py").unlink()
    again = tiny_model.install(tmp_path)
    assert again.kept == [settings]
    assert [path.name for path in again.written] == ["__init__.py"]
    assert "N_UBATCH = 64" in settings.read_text()


def test_the_demo_patch_changes_one_setting(tmp_path: Path) -> None:
    root = tiny_model.install(tmp_path).package_root
    settings = root / "llamaserve" / "settings.py"
    before = settings.read_text()
    patch = Path(__file__).parents[3] / "config" / "patches" / "ubatch-64.diff"
    subprocess.run(["git", "apply", str(patch)], cwd=root, check=True)
    assert settings.read_text() == before.replace("N_UBATCH = 512", "N_UBATCH = 64") != before


def test_the_package_stands_alone() -> None:
    """Its copy runs under an interpreter that need not have servemap."""
    for source in tiny_model.PACKAGE.glob("*.py"):
        assert "servemap" not in source.read_text()
