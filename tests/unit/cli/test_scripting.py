"""What every rule's script shares, tried in processes of their own: signals, errors, logs."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAD = """
import sys, time
from pathlib import Path
from servemap.model.errors import ConfigError, OrphanedError
from servemap.scripting import InterruptedByController, rule_script, say
with rule_script(Path(sys.argv[1])):
"""


def start(log: Path, body: str) -> subprocess.Popen[str]:
    code = HEAD + "\n".join(f"    {line}" for line in body.splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", code, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(log: Path, body: str) -> tuple[int, str]:
    process = start(log, body)
    _, stderr = process.communicate(timeout=240)
    return process.returncode, stderr


def test_a_body_that_ends(tmp_path: Path) -> None:
    log = tmp_path / "new" / "rule.log"
    assert run(log, "say('one line')") == (0, "one line\n")
    assert run(log, "pass")[0] == 0
    lines = log.read_text().splitlines()
    assert [line.split()[-1] for line in lines if "begin" not in line] == ["end", "end"]
    assert sum("begin, pid" in line for line in lines) == 2, "a log is never overwritten"


def test_an_error_for_people_has_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "rule.log"
    code, said = run(log, "raise ConfigError('what', 'here', 'do that')")
    assert code == 1
    assert said == "error: what\n  where: here\n  remedy: do that\n"
    assert "what" in log.read_text()
    assert "Traceback" not in log.read_text() + said


def test_any_other_error_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "rule.log"
    code, said = run(log, "1 / 0")
    assert code == 1
    assert said.startswith("error: ZeroDivisionError: division by zero\n")
    assert str(log) in said
    assert "Traceback" not in said
    assert "Traceback" in log.read_text()


def test_an_orphan_leaves_word(tmp_path: Path) -> None:
    log = tmp_path / "rule.log"
    code, said = run(log, "raise OrphanedError")
    assert (code, said) == (1, "")
    assert "the controller died" in log.read_text()


CLEAN_UP = """
try:
    print("ready", flush=True)
    time.sleep(60)
except InterruptedByController:
    print("cleaning", flush=True)
    sys.stdin.readline()
    Path(sys.argv[1]).with_name("cleaned").touch()
    raise
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_good_order_however_often_they_come(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "rule.log"
    code = HEAD + "\n".join(f"    {line}" for line in CLEAN_UP.splitlines())
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(log)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "cleaning\n"
    for again in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(again)
        time.sleep(0.05)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(60) == 130
    assert (tmp_path / "cleaned").exists()
    assert "ended by the controller" in log.read_text()
    assert process.stderr is not None
    assert process.stderr.read() == ""
