"""A failure that no signature knows still shows its last errors and its first traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.engines.unknown import MAX_ERRORS, Unknown, explain_unknown
from tests.unit.engines.test_failures import corpus_log

PLAIN = """\
made-up engine 1.0
Traceback (most recent call last):
  File "/x/first.py", line 3, in outer
    inner()
    ^^^^^^^
  File "/x/second.py", line 14, in inner
    raise Odd("no such thing: here")
odd.pkg.Odd: no such thing: here

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/third.py", line 9, in <module>
    outer()
RuntimeError: wrapped
"""


def told(text: str) -> tuple[int, str, str | None] | None:
    found = explain_unknown(text).traceback
    return (found.line_number, found.exception, found.frame) if found else None


def test_the_first_traceback_is_the_root_and_its_last_frame_counts() -> None:
    assert told(PLAIN) == (2, "odd.pkg.Odd: no such thing: here", "/x/second.py:14 in inner")


def test_a_logger_that_puts_its_words_before_each_line() -> None:
    def logged(text: str, by: str) -> list[str]:
        return [f"({by}) ERROR 01-02 [core.py:7] {line}" for line in text.splitlines()]

    mine, others = logged(PLAIN, "Engine pid=1"), logged(PLAIN.replace("Odd", "Other"), "W pid=2")
    mixed = "\n".join(line for pair in zip(mine, others, strict=True) for line in pair)
    assert told(mixed) == (3, "odd.pkg.Odd: no such thing: here", "/x/second.py:14 in inner")


def test_words_before_the_first_line_alone() -> None:
    text = f"[01-02 TP0] Scheduler: {PLAIN.partition(chr(10))[2]}"
    assert told(text) == (1, "odd.pkg.Odd: no such thing: here", "/x/second.py:14 in inner")


def test_an_indented_traceback() -> None:
    text = "\n".join(f"    {line}" for line in PLAIN.splitlines())
    assert told(text) == (2, "odd.pkg.Odd: no such thing: here", "/x/second.py:14 in inner")


@pytest.mark.parametrize("cut_after", range(2, 7))
def test_a_traceback_that_was_cut_is_none(cut_after: int) -> None:
    assert told("\n".join(PLAIN.splitlines()[:cut_after])) is None


def test_an_exception_without_words_ends_a_traceback() -> None:
    assert told(PLAIN.replace("odd.pkg.Odd: no such thing: here", "AssertionError")) == (
        2, "AssertionError", "/x/second.py:14 in inner",
    )  # fmt: skip


def test_the_last_errors_without_doubles_frames_and_refused_requests() -> None:
    lines = [f"ERROR number {n}" for n in range(7)] + ["ERROR number 6"] * 3
    lines += ['ERROR: "GET /x HTTP/1.1" 500', 'E [a.py:1]   File "/x/MyError.py", line 3, in f']
    found = explain_unknown("\n".join([*lines, "INFO all is well"]))
    assert found.errors == [f"ERROR number {n}" for n in range(2, 7)]
    assert found.last_lines == []


def test_without_any_error_the_last_lines_are_shown() -> None:
    found = explain_unknown("a\nb\n\nc\n\nd\n  e  \n10%\r20%\r30%\n")
    assert found == Unknown([], None, ["b", "c", "d", "e", "30%"])
    assert found.say() == "last lines of its log: b | c | d | e | 30%"
    assert explain_unknown(" \n").say() == "its log is empty"


def test_a_failure_in_one_line_of_words() -> None:
    said = explain_unknown(PLAIN).say()
    assert said.startswith(
        "first traceback: odd.pkg.Odd: no such thing: here at /x/second.py:14 in inner; "
        "last errors of its log: "
    )
    assert said.endswith("RuntimeError: wrapped")
    assert "\n" not in said


@given(st.text(alphabet=st.sampled_from('Traceback (most recent call last):\n\r File ",line 1')))
def test_any_text(text: str) -> None:
    found = explain_unknown(text)
    assert len(found.errors) <= MAX_ERRORS
    assert found.say()


def test_a_test_run_of_a_real_server_that_failed() -> None:
    """The router's log of the corpus: no server failed, a comparison of its throughput did."""
    found = explain_unknown(corpus_log("016_sglang_ascend_pd_router_error"))
    assert found.traceback is not None
    assert found.traceback.exception == (
        "AssertionError: 218.97 not greater than or equal to 496.3225806451613"
    )
    assert (found.traceback.frame or "").endswith("unittest/case.py:703 in fail")


def test_the_root_cause_of_a_real_engine_process() -> None:
    found = explain_unknown(corpus_log("002_vllm0251_int4_kv_too_small_fail"))
    assert found.traceback is not None
    assert found.traceback.exception.startswith("ValueError: To serve at least one request")
    assert "RuntimeError: Engine core initialization failed" in found.errors[-1]
