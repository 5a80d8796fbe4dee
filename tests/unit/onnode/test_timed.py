"""A command at a time of a node's clock: when it began, and what came of it."""

import json
import sys
import time

from servemap.onnode import timed


def test_it_begins_at_the_time_and_says_what_it_said(capsys) -> None:
    at_ns = time.time_ns() + 50_000_000
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    argv = ["--at", str(at_ns), "--limit", "60", "--", sys.executable, "-c", script]
    assert timed.main(argv) == 0
    said = json.loads(capsys.readouterr().out)
    assert at_ns == said["asked_ns"] <= said["began_ns"] <= said["ended_ns"]
    assert (said["code"], said["error"]) == (3, None)
    assert (said["stdout"], said["stderr"]) == ("out\n", "err\n")


def test_the_commands_own_dashes_stay_its_own(capsys) -> None:
    argv = ["--at", "0", "--limit", "60", "--", sys.executable, "-c", "import sys; print(sys.argv)"]
    timed.main([*argv, "--", "--at"])
    assert json.loads(capsys.readouterr().out)["stdout"] == "['-c', '--', '--at']\n"


def test_a_time_that_is_past_and_a_program_that_is_not_there() -> None:
    said = timed.timed(1, 60.0, ["/nowhere/nsys", "start"])
    assert said["code"] is None
    assert said["error"] == "it cannot be started: No such file or directory"
    assert said["began_ns"] > said["asked_ns"]


def test_what_does_not_end_is_killed() -> None:
    said = timed.timed(0, 0.2, [sys.executable, "-c", "import time; time.sleep(600)"])
    assert said["code"] is None
    assert said["error"] == "it did not end within 0.2 s and was killed"
