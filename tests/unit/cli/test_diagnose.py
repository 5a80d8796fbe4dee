"""`servemap diagnose`: a log by hand."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servemap.cli import app


def call(*args: str) -> Result:
    return CliRunner().invoke(app, ["diagnose", *args])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_a_cause_is_told_with_its_line_and_remedy(log: Path) -> None:
    log.write_text("starting\nValueError: No available memory for the cache blocks\n")
    done = call(str(log))
    assert done.exit_code == 0
    assert done.output.splitlines()[:3] == [
        str(log),
        "  cause: kv-none (memory), line 2",
        "    ValueError: No available memory for the cache blocks",
    ]
    assert "    to do: Raise settings.memory_fraction" in done.output


def test_an_unknown_failure_shows_its_first_traceback_and_last_errors(log: Path) -> None:
    log.write_text(
        'Traceback (most recent call last):\n  File "/x/a.py", line 3, in outer\n    inner()\n'
        "odd.Odd: nobody knows\nERROR: giving up\n"
    )
    said = call(str(log)).output
    assert "  no signature names a cause\n" in said
    assert (
        "  first traceback, line 1\n    odd.Odd: nobody knows\n    at /x/a.py:3 in outer\n" in said
    )
    assert said.rstrip().endswith("ERROR: giving up")


def test_a_log_without_errors_shows_its_last_lines(log: Path) -> None:
    log.write_text("one\ntwo\n")
    assert call(str(log)).output.endswith("  last lines\n    one\n    two\n")


def test_only_a_process_that_lives_can_hang(log: Path) -> None:
    log.write_text("Capturing the model for CUDA graphs.\n")
    assert "capture-cut (crash)" in call(str(log)).output
    assert "capture-hang (hang)" in call(str(log), "--alive").output


def test_another_engines_words_do_not_count(log: Path) -> None:
    log.write_text("ValueError: No available memory for the cache blocks\n")
    assert "kv-none" not in call(str(log), "--engine", "llamacpp").output
    assert call(str(log), "--engine", "nothing").exit_code == 2


def test_credentials_are_taken_out(log: Path) -> None:
    log.write_text("ERROR: Authorization: Bearer abcdefghijklmnop\n")
    said = call(str(log)).output
    assert "ERROR" in said
    assert "abcdefghijklmnop" not in said


def test_several_logs_and_one_that_is_not_there(log: Path) -> None:
    log.write_text("Killed\n")
    assert call(str(log), str(log)).output.count("cause: killed") == 2
    assert isinstance(call(str(log.with_name("no.log"))).exception, FileNotFoundError)


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/x/a.py", line 3, in outer\n    inner()\n'
    "odd.Odd: nobody knows\n"
)


def record(line: str) -> str:
    return json.dumps({"log": line, "stream": "stderr", "time": "2026-03-01T12:00:00Z"}) + "\n"


@pytest.mark.parametrize("form", ["times", "records", "utf-16"])
def test_what_a_log_driver_put_around_a_log_hides_nothing(log: Path, form: str) -> None:
    lines = TRACEBACK.splitlines(keepends=True)
    if form == "times":
        text = "".join(f"2026-03-01T12:00:0{n}.12345Z {line}" for n, line in enumerate(lines))
    else:
        text = "".join(map(record, lines)) if form == "records" else TRACEBACK
    log.write_text(text, encoding="utf-16" if form == "utf-16" else "utf-8")
    said = call(str(log)).output
    assert "  first traceback, line 1\n    odd.Odd: nobody knows\n    at /x/a.py:3" in said


def test_an_empty_log_is_said_to_be_empty(log: Path) -> None:
    for text in ("", "\n \n"):
        log.write_text(text)
        assert call(str(log)).output.splitlines()[1:] == ["  the log is empty"]


def test_what_a_log_holds_does_nothing_to_the_terminal(log: Path) -> None:
    log.write_bytes(
        b"ERROR: \x1b]0;title\x07\x1b[2Jgone \x08\x9b\xff\n" + record("\ud800").encode()
    )
    said = call(str(log))
    assert said.exit_code == 0 and "gone" in said.output
    assert not any(ord(sign) < 32 and sign != "\n" for sign in said.output)


def test_a_log_too_long_to_be_held_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servemap.parsers.frame.MAX_BYTES", 3)
    log.write_text("four")
    assert "4 bytes or more, the limit is 3" in str(call(str(log)).exception)
