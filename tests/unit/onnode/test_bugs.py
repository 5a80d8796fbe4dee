"""Every entry of `bug_entries.py`, by its place in the list of reports."""

from pathlib import Path

import pytest
from bug_entries import ENTRIES, Entry


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: one.id)
def test_bug(one: Entry, tmp_path: Path) -> None:
    assert one.run(tmp_path)


def test_the_document_lists_all() -> None:
    lines = Path("docs/bugs-tested.md").read_text(encoding="utf-8").splitlines()
    listed = [
        tuple(line.split(" | ")[:4]) for line in lines if line.startswith(("| A", "| B", "| S"))
    ]
    assert listed == [(f"| {one.id}", one.reports, one.given, one.right) for one in ENTRIES]
