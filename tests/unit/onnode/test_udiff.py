"""The strict diff applier against two independent makers of diffs: difflib and git."""

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import udiff

LINES = st.lists(st.sampled_from(["", "a", "b", "- c", "-- c", "++ d", "\\ e", "@@ x", "f\r", " "]))
TEXTS = st.builds(
    lambda lines, end: "\n".join(lines) + ("\n" if end and lines else ""), LINES, st.booleans()
)


def unified(old: str, new: str, context: int, name: str = "f.py") -> bytes:
    """difflib's diff, with the marker that it leaves out where a file lacks its last newline."""
    made = difflib.unified_diff(
        [line.decode() for line in udiff.split_lines(old.encode())],
        [line.decode() for line in udiff.split_lines(new.encode())],
        f"a/{name}",
        f"b/{name}",
        n=context,
    )
    lines = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    ]
    return "".join(lines).encode()


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_applying_a_diff_gives_the_new_text(old: str, new: str, context: int) -> None:
    diff = unified(old, new, context)
    if old == new:
        with pytest.raises(udiff.DiffError):
            udiff.parse(diff)
        return
    (parsed,) = udiff.parse(diff)
    assert (parsed.old_name, parsed.new_name) == ("a/f.py", "b/f.py")
    assert udiff.apply(parsed, old.encode()) == new.encode()


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 4))
def test_a_diff_of_another_text_is_refused_or_fits_exactly(
    old: str, new: str, other: str, context: int
) -> None:
    if old == new:
        return
    (parsed,) = udiff.parse(unified(old, new, context))
    lines = udiff.split_lines(other.encode())
    fits = all(lines[h.at : h.at + len(h.old)] == h.old for h in parsed.hunks)
    if not fits:
        with pytest.raises(udiff.DiffError):
            udiff.apply(parsed, other.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parsed = udiff.parse(b"--- a\n+++ b\n" + data)
    except udiff.DiffError:
        return
    assert parsed[0].hunks


def test_two_files_in_one_diff_are_both_named() -> None:
    both = unified("1\n", "2\n", 3, "one.py") + unified("1\n", "-- 2\n", 3, "two.py")
    assert [diff.new_name for diff in udiff.parse(both)] == ["b/one.py", "b/two.py"]


def test_a_removed_line_that_looks_like_a_header_is_not_one() -> None:
    old, new = "-- x\n++ y\nkeep\n", "++ y\n-- x\nkeep\n"
    (parsed,) = udiff.parse(unified(old, new, 3))
    assert udiff.apply(parsed, old.encode()) == new.encode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("one\ntwo\n", "one\n2\n"),
        ("one\ntwo", "one\ntwo\n"),
        ("one\ntwo\n", "one\ntwo"),
        ("one\r\ntwo\r\n", "one\r\n2\r\n"),
        ("\n".join(map(str, range(50))) + "\n", "\n".join(map(str, range(1, 51))) + "\n"),
    ],
)
def test_git_diffs_apply(tmp_path: Path, old: str, new: str) -> None:
    for name, text in (("a", old), ("b", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.txt").write_bytes(text.encode())
    made = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "a/f.txt", "b/f.txt"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    ).stdout
    (parsed,) = udiff.parse(made)
    assert udiff.apply(parsed, old.encode()) == new.encode()


def test_a_mail_signature_and_empty_context_lines_are_understood() -> None:
    diff = b"From: x\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n\n-two\n+2\n-- \n2.39.2\n\n"
    (parsed,) = udiff.parse(diff)
    assert udiff.apply(parsed, b"one\n\ntwo\n") == b"one\n\n2\n"


@pytest.mark.parametrize(
    ("diff", "says"),
    [
        (b"", "no '---'"),
        (b"--- a\n+++ b\n", "should be a hunk header"),
        (b"--- a\n+++ b\n@@ bad @@\n", "not a hunk header"),
        (b"--- a\n+++ b\n@@ -1,2 +1,2 @@\n one\n", "ends within a hunk"),
        (b"--- a\n+++ b\n@@ -1 +1 @@\n one\n+two\n", "belongs to no hunk"),
        (b"--- a\n+++ b\n@@ -1 +0,0 @@\n-one\n-two\n", "belongs to no hunk"),
        (b"--- a\n+++ b\n@@ -1,1 +1,2 @@\n-one\n-two\n+x\n+y\n", "contradicts its header"),
        (b"--- a\n+++ b\n@@ -1 +1 @@\n\\ No newline\n", "follows no line"),
        (b"--- a\n+++ b\n@@ -1 +1 @@\nxone\n", "no line of a hunk"),
        (b"diff --git a/f b/g\nsimilarity index 90%\nrename from f\n", "renames a file"),
        (b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "changes a file's mode"),
        (b"Binary files a/f and b/f differ\n", "is binary"),
        (b"@@ -1 +1 @@\n-a\n+b\n", "belongs to no hunk"),
    ],
)
def test_malformed_diffs_are_named(diff: bytes, says: str) -> None:
    with pytest.raises(udiff.DiffError, match=says):
        udiff.parse(diff)


@pytest.mark.parametrize(
    ("original", "says"),
    [
        (b"x\none\ntwo\n", "hunk 1 does not fit at line 1; its lines are found at line 2"),
        (b"one\r\ntwo\r\n", "only the line ends differ"),
        (b"one\n", "hunk 1 does not fit at line 1"),
        (b"one\ntwo", "only the line ends differ"),
        (b"", "does not fit"),
    ],
)
def test_a_misfit_says_where(original: bytes, says: str) -> None:
    (parsed,) = udiff.parse(unified("one\ntwo\n", "one\n2\n", 3))
    with pytest.raises(udiff.DiffError, match=says):
        udiff.apply(parsed, original)


def test_an_insertion_beyond_the_end_is_refused() -> None:
    (parsed,) = udiff.parse(b"--- a\n+++ b\n@@ -9,0 +10 @@\n+x\n")
    with pytest.raises(udiff.DiffError, match="does not fit at line 10"):
        udiff.apply(parsed, b"one\n")


def test_overlapping_hunks_are_refused() -> None:
    (parsed,) = udiff.parse(b"--- a\n+++ b\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n@@ -2 +2 @@\n-b\n+y\n")
    with pytest.raises(udiff.DiffError, match="overlaps"):
        udiff.apply(parsed, b"a\nb\n")


def test_a_line_without_newline_never_lands_inside() -> None:
    (parsed,) = udiff.parse(b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+x\n\\ No newline at end of file\n")
    with pytest.raises(udiff.DiffError, match="without a newline"):
        udiff.apply(parsed, b"a\nb\n")
