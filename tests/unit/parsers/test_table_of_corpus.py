"""docs/corpus.md: no sample is read wrong, and each is judged or skipped with a reason."""

from pathlib import Path

from tests.corpus import index
from tests.corpus_page import REASONS, judged, named_in, page, reason

ROOT = Path(__file__).parents[3]


def test_no_sample_is_read_wrong() -> None:
    index()
    assert [key for key, right in judged().items() if not right] == []


def test_every_row_is_judged_or_has_a_reason_and_every_reason_is_used() -> None:
    files = {file for file, _ in judged()} if index() else set()
    reasons = {reason(file) for file in index() if file not in files}
    assert files <= set(index())
    assert reasons == set(REASONS.values())


def test_what_is_said_to_be_judged_elsewhere_is_named_by_a_test() -> None:
    files = {file for file, _ in judged()} if index() else set()
    worked_out = [
        file
        for file, row in index().items()
        if row["right_values"] != "-" and not row["right_values"].startswith("NOT WORKED OUT")
    ]
    left = [file for file in worked_out if file not in files and reason(file) != "no kind reads it"]
    assert [file for file in left if not named_in(file)] == []


def test_the_page_is_the_one_of_a_run() -> None:
    index()
    assert (ROOT / "docs/corpus.md").read_text(encoding="utf-8") == page(), (
        "run `python -m tests.corpus_page docs/corpus.md`"
    )
