"""What a load left is found by its mark alone, and nothing else is ended."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_process import WAIT_S, agent_argv

from servemap.onnode.end_loads import answer, main, mark

Start = Callable[..., "subprocess.Popen[bytes]"]
PARENT = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program with a mark; it is ended with the test."""
    started = []

    def run(env: dict[str, str], argv: tuple[str, ...] = ("sleep", "600")) -> object:
        process = subprocess.Popen(argv, env={**os.environ, **env}, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield run  # type: ignore[misc]
    for process in started:
        process.kill()
        process.communicate()


def test_all_loads_of_a_run_but_one(start: Start, tmp_path: Path) -> None:
    workdir = str(tmp_path)
    new = start(mark("new", workdir))
    old = start(mark("old", workdir))
    of_another_run = start(mark("old", workdir + "2"))
    said = answer(workdir, None, "new", 5)
    assert [one["pid"] for one in said["met"]] == [old.pid]
    assert said["left"] == []
    assert old.wait(WAIT_S) < 0
    assert new.poll() is None
    assert of_another_run.poll() is None
    assert answer(workdir, None, "new", 5)["met"] == []


def test_one_load_with_what_it_started(start: Start, tmp_path: Path) -> None:
    workdir = str(tmp_path)
    parent = start(mark("a", workdir), (sys.executable, "-c", PARENT))
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    other = start(mark("b", workdir))
    argv = agent_argv("end-loads", "--workdir", workdir, "--load", "a")
    done = subprocess.run(argv, capture_output=True, check=True, timeout=WAIT_S)
    said = json.loads(done.stdout)
    assert {one["pid"] for one in said["met"]} == {parent.pid, child}
    assert said["left"] == []
    assert other.poll() is None


def test_one_that_ignores_a_term_is_killed(start: Start, tmp_path: Path) -> None:
    stubborn = start(mark("a", str(tmp_path)), ("sh", "-c", "trap '' TERM; echo up; sleep 600"))
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    assert answer(str(tmp_path), "a", None, 0.1)["left"] == []
    assert stubborn.wait(WAIT_S) < 0


def test_either_one_load_or_all_but_one(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--workdir", "/w"], ["--workdir", "/w", "--load", "a", "--but", "b"]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 2
