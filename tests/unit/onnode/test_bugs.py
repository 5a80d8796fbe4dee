"""Every entry of `bug_entries.py` and `bug_entries_recorded.py`, and the page that lists them."""

from pathlib import Path

import pytest
from bug_entries import ENTRIES, Entry
from bugs_page import PAGE, comparable, row, rows


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: one.id)
def test_bug(one: Entry, tmp_path: Path) -> None:
    measured = row(one, one.run(tmp_path))
    listed = [line for line in rows(PAGE.read_text(encoding="utf-8")) if f"| {one.id} |" in line]
    assert [comparable(line) for line in listed] == [comparable(measured)]


def test_the_page_has_a_row_for_each_entry_and_no_other() -> None:
    listed = rows(PAGE.read_text(encoding="utf-8"))
    assert [line.split(" | ")[0] for line in listed] == [f"| {one.id}" for one in ENTRIES]
    assert len({one.id for one in ENTRIES}) == len(ENTRIES)


def test_only_times_and_rates_are_left_out_of_the_comparison() -> None:
    line = "| A1 | a/b#1 | 100 ms | 25 ms | 4 x 23.06 ms, 432 tok/s, 37 tokens |"
    assert comparable(line) == "| A1 | a/b#1 | 100 ms | 25 ms | 4 x # ms, # tok/s, 37 tokens |"
