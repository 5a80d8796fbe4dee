"""Text of a campaign file: what is written is what is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import ConfigError
from servemap.prepare.draft import comment, inline, slug, unique_slugs, write_draft
from servemap.prepare.small_cases import small_cases

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["on", "NO", "null", "~", "1e5", "0x1", "1:30", "- a", "# b", "a: b", "{x}", "2020-01-01", "="]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    text = inline(value)
    assert "\n" not in text
    assert yaml.safe_load(f"- {text}  # behind it") == [value]
    assert yaml.safe_load(f"key:\n    {text}") == {"key": value}


@given(st.text())
def test_a_comment_stays_on_its_line(text: str) -> None:
    line = comment(text)
    assert line.splitlines() in ([], [line])


@given(st.text(), st.text())
def test_ids(one: str, other: str) -> None:
    names = unique_slugs([one, other, one])
    assert len(set(names)) == 3
    for name in [*names, slug(one)]:
        assert 1 <= len(name) <= 64
        assert name[0] not in "-_"
    assert slug("Qwen/Qwen3-8B") == "qwen-qwen3-8b"
    assert unique_slugs(["10.0.0.1", "10-0-0-1"]) == ["10-0-0-1", "10-0-0-1-2"]


@given(st.integers(2, 300_000), st.none() | st.integers(1, 512))
def test_cases_fit_the_server(context: int, max_active: int | None) -> None:
    cases = small_cases(context, max_active)
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert case["isl"] >= 1
        assert case["osl"] >= 1
        assert case["isl"] + case["osl"] <= context
        assert case["concurrency"] <= (max_active or 512)


def test_a_long_context_is_used() -> None:
    assert {case["isl"] for case in small_cases(131_072)} == {1024, 256, 16_384}
    assert max(case["isl"] for case in small_cases(4096)) == 1024


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    write_draft(path, "one\n", force=False)
    with pytest.raises(ConfigError, match="there already"):
        write_draft(path, "two\n", force=False)
    assert path.read_text() == "one\n"
    write_draft(path, "two\n", force=True)
    assert path.read_text() == "two\n"
    with pytest.raises(OSError, match="No such file"):
        write_draft(tmp_path / "none" / "c.yaml", "x", force=True)
