"""Reasons that were recorded as an error's whole text, taken apart again."""

from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import NodeError, parts


def test_an_error_that_quotes_another_names_each_place_and_remedy_once() -> None:
    inner = NodeError("cannot change files: Permission denied", "w1:/srv/x", "let the user write")
    outer = NodeError(f"launch failed: {inner}", "w1:/srv/x", "let the user write")
    said = parts(str(outer))
    assert said.what == "launch failed: cannot change files: Permission denied"
    assert (said.where, said.remedy) == (["w1:/srv/x"], ["let the user write"])
    assert said.line == (
        "launch failed: cannot change files: Permission denied (w1:/srv/x); "
        "to do: let the user write"
    )


def test_a_plain_reason_stays_as_it_is() -> None:
    assert parts("stopped by a person: lunch").line == "stopped by a person: lunch"
    assert parts("").line == ""


@given(st.text())
def test_a_line_is_one_line(reason: str) -> None:
    assert len(parts(reason).line.splitlines()) <= 1
