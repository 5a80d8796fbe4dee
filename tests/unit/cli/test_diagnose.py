"""`servemap diagnose`: a log by hand."""

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
