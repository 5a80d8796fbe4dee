"""One spelling for equal things, and files that are whole or not there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.canon import (
    canonical_json,
    digest,
    file_sha256,
    write_json_atomic,
    write_text_atomic,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def reordered(value: Any) -> Any:
    """The same value with every mapping's keys in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_json(value) == canonical_json(reordered(value))
    assert digest(value) == digest(reordered(value))
    assert json.loads(canonical_json(value)) == value


@given(VALUES, VALUES)
def test_different_values_are_told_apart(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) == same


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_numbers_that_json_lacks_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomic(tmp_path / "f.json", value)
    assert list(tmp_path.iterdir()) == []


def test_a_known_digest() -> None:
    assert canonical_json({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_a_files_digest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert (
        file_sha256(tmp_path / "f")
        == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep/f.txt"
    write_text_atomic(path, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_half_a_character_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    """As an answer of somebody's server may hold it; no record is lost for that."""
    value = json.loads('{"a": "x\\ud83dy", "b": "\\ud83d\\ude00"}')
    write_json_atomic(tmp_path / "x.json", value)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == value
