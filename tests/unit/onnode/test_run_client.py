"""`run-client` as a process: what a client of others said when, and how it ended."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import parts
from servemap.onnode.client_lines import LONGEST, Lines
from servemap.onnode.ident import all_stats, mark_of
from servemap.onnode.run_client import CLIENT_MARK
from tests.waiting import WAIT_S, longer, wait_for

ROOT = Path(__file__).parents[3]


def spec(folder: Path, script: str, **changes: Any) -> dict[str, Any]:
    """A specification whose client is a Python script, without a warm-up."""
    probe = "import json; print(json.dumps({'version': '1', 'perf_counter': 'p'}))"
    stream = {"name": "main", "kind": "closed", "isl": 1, "osl": 1, "concurrency": 1}
    whole = {
        "schema": 1,
        "url": "http://127.0.0.1:9",
        "endpoint": "/v1/completions",
        "model": "m",
        "seed": "s",
        "load_id": f"load-{folder.name}",
        "vocab": [3, 9],
        "request": {},
        "api_key_env": None,
        "timeout_s": 5,
        "case_timeout_s": 30,
        "warmup": None,
        "min_window_s": 0,
        "segments": [{"name": "main", "streams": [{**stream, "num_prompts": 1}]}],
        "client": {
            "name": "vllm-bench",
            "argv": [sys.executable, "-c", script],
            "env": {"PYTHONUNBUFFERED": "1"},
            "cwd": str(folder / "client"),
            "probe": [sys.executable, "-c", probe],
            "marks": {"begin": "^start", "end": "^stop"},
        },
    }
    client = {**whole["client"], **changes.pop("client", {})}
    return {**whole, "client": client, **changes}


def start(folder: Path, content: dict[str, Any]) -> "subprocess.Popen[str]":
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "load.json"
    path.write_text(json.dumps(content))
    argv = ["run-client", "--spec", str(path), "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "servemap.onnode", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, script: str, **changes: Any) -> tuple[int, dict[str, Any]]:
    process = start(folder, spec(folder, script, **changes))
    process.communicate(timeout=60)
    return process.returncode, record(folder)


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "client.json").read_text()))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]


def left(load_id: str) -> list[int]:
    return [stat.pid for stat in all_stats() if mark_of(stat.pid, CLIENT_MARK) == load_id]


def test_lines_are_kept_with_the_time_at_which_they_came(tmp_path: Path) -> None:
    # Its processor time at `end` is read from a process that must still be there then: when one
    # more line is noted, all is done that was to do for those before it.
    script = (
        "import time\n"
        "def say(text, last):\n"
        "    print(text)\n"
        "    while last not in open('../lines.jsonl').read(): time.sleep(0.01)\n"
        "say('start', 'start'); time.sleep(0.3); say('x\\rstop 1\\nstop 2', 'stop 2')\n"
        "say('bye', 'bye')\n"
    )
    code, said = run(tmp_path, script)
    assert (code, said["status"], said["reasons"]) == (0, "ok", [])
    assert [line["text"] for line in lines(tmp_path)] == ["start", "x", "stop 1", "stop 2", "bye"]
    begin, end = said["marks"]["begin"], said["marks"]["end"]
    assert end["text"] == "stop 1", "the first that matches"
    assert end["mono_ns"] - begin["mono_ns"] > 200_000_000, "no line waited for a buffer to fill"
    assert begin["t_ns"] - begin["mono_ns"] == said["clock"]["wall_ns"] - said["clock"]["mono_ns"]
    assert said["client"]["version"] == "1"
    assert said["client"]["exit_code"] == 0
    assert said["window_cpu"]["seconds"] > 0.2
    assert said["started_ns"] < begin["t_ns"] < end["t_ns"] < said["ended_ns"]
    assert said["lines"] == {"seen": 5, "kept": 5}


def test_a_client_that_fails_says_why_in_its_last_words(tmp_path: Path) -> None:
    code, said = run(tmp_path, "raise SystemExit('no such option: --lengthy')")
    assert code == 1
    assert said["status"] == "failed"
    assert said["reasons"] == ["vllm-bench ended with exit code 1: no such option: --lengthy"]


def test_the_first_error_is_told_beside_the_last_words(tmp_path: Path) -> None:
    script = "print('│ KeyError: a │'); print('x Exception'); raise SystemExit('see log/a.txt')"
    _, said = run(tmp_path, script)
    assert said["reasons"] == [
        "vllm-bench ended with exit code 1: see log/a.txt (first: KeyError: a)"
    ]


def test_a_client_that_says_nothing(tmp_path: Path) -> None:
    _, said = run(tmp_path, "raise SystemExit(5)")
    assert said["reasons"] == ["vllm-bench ended with exit code 5: no word"]


def test_a_client_that_is_killed_is_said_to_be(tmp_path: Path) -> None:
    _, said = run(tmp_path, "import os; print('start'); os.kill(os.getpid(), 9)")
    assert said["reasons"] == ["vllm-bench ended with signal 9: start"]
    assert said["client"]["exit_code"] == -9


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (["/no/such/python", "-c", ""], "cannot be run: /no/such/python: No such file"),
        ([sys.executable, "-c", "import nothing_of_that_name"], "nothing_of_that_name"),
        ([sys.executable, "-c", "print('hello')"], "no answer"),
        ([sys.executable, "-c", "print('[1]')"], "no answer"),
    ],
)
def test_a_client_that_is_not_there(tmp_path: Path, probe: list[str], words: str) -> None:
    _, said = run(tmp_path, "print('start')", client={"probe": probe})
    assert said["status"] == "failed"
    reason = parts(said["reasons"][0])
    assert words in reason.what
    assert reason.where == ["clients.vllm-bench.python"]
    assert reason.remedy, "it is said what to do"
    assert not lines(tmp_path), "it was not started"


def test_a_client_that_hangs_is_ended_with_all_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "print('start'); time.sleep(600)\n"
    )
    for limit_s in longer(1.5):
        code, said = run(tmp_path, script, case_timeout_s=limit_s)
        if said["marks"]:
            break
    assert code == 1
    assert said["reasons"] == [f"case timeout: vllm-bench did not end within {limit_s:g} s"]
    assert said["marks"]["begin"]["text"] == "start"
    assert left(f"load-{tmp_path.name}") == []


@pytest.mark.parametrize("output", ["None", "subprocess.DEVNULL"], ids=["our pipe", "none"])
def test_a_client_that_leaves_a_child_behind(tmp_path: Path, output: str) -> None:
    script = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        f" start_new_session=True, stdout={output}, stderr={output})\n"
        "print('start')\n"
    )
    code, said = run(tmp_path, script)
    assert (code, said["status"], said["reasons"]) == (0, "ok", [])
    assert "begin" in said["marks"]
    assert left(f"load-{tmp_path.name}") == []


def test_what_was_said_outlives_a_runner_that_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, spec(tmp_path, "import time; print('start'); time.sleep(600)"))
    file, load_id = tmp_path / "lines.jsonl", f"load-{tmp_path.name}"
    wait_for(lambda: file.exists() and file.read_text(), "a line")
    process.kill()
    process.communicate(timeout=WAIT_S)
    for pid in left(load_id):
        os.kill(pid, signal.SIGKILL)
    assert [line["text"] for line in lines(tmp_path)] == ["start"]


def test_when_it_is_ended_so_is_the_client(tmp_path: Path) -> None:
    process = start(tmp_path, spec(tmp_path, "import time; print('start'); time.sleep(600)"))
    wait_for(lambda: left(f"load-{tmp_path.name}"), "the client")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_S)
    assert record(tmp_path)["reasons"] == ["terminated"]
    assert left(f"load-{tmp_path.name}") == []


CHILD_WITHOUT_END = (
    "import subprocess, sys\n"
    "loop = 'while True: print(\"y\" * 500)'\n"
    "subprocess.Popen([sys.executable, '-c', loop], start_new_session=True)\n"
    "import time\n"
    "while open('../lines.jsonl').read().count('yyy') < 20: time.sleep(0.01)\n"
)


def test_a_child_that_prints_for_ever_does_not_hold_us(tmp_path: Path) -> None:
    code, said = run(tmp_path, CHILD_WITHOUT_END)
    assert (code, said["status"], said["reasons"]) == (0, "ok", [])
    assert said["lines"]["seen"] > 10
    assert left(f"load-{tmp_path.name}") == []


def said_all(pid: int) -> bool:
    """Whether a process runs that has closed its output."""
    return Path(f"/proc/{pid}/fd/0").exists() and not Path(f"/proc/{pid}/fd/1").exists()


@pytest.mark.parametrize("step", ["argv", "probe"])
def test_a_client_that_says_nothing_more_and_hangs_is_ended_when_asked(
    tmp_path: Path, step: str
) -> None:
    """Its end is seen in time though it closed its output, or never got beyond its version."""
    script = "import os, time; os.close(1); os.close(2); time.sleep(600)"
    hangs = {step: [sys.executable, "-c", script]}
    process = start(tmp_path, spec(tmp_path, "", client=hangs, case_timeout_s=600))
    wait_for(lambda: any(said_all(pid) for pid in left(f"load-{tmp_path.name}")), "silence")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_S)
    assert record(tmp_path)["reasons"] == ["terminated"]
    assert left(f"load-{tmp_path.name}") == []


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ({"env": {"A": "b\0c"}}, "cannot be run: .*: embedded null byte"),
        ({"argv": ["/bin/true", "a\0b"]}, "cannot be started: embedded null byte"),
        ({"cwd": "/dev/null/x"}, "cannot be started: .*Not a directory"),
    ],
)
def test_what_cannot_be_a_process_is_said(
    tmp_path: Path, client: dict[str, Any], words: str
) -> None:
    _, said = run(tmp_path, "", client=client)
    assert re.fullmatch("vllm-bench " + words + ".*", said["reasons"][0], re.DOTALL)


def test_a_line_of_one_word_takes_no_time_of_its_own(tmp_path: Path) -> None:
    """Looking for an error in a line is linear in it: the pipe must not hold the client up."""
    _, said = run(tmp_path, "for n in range(300000): print('x' * 300)\nprint('stop')")
    assert said["lines"]["seen"] == 300_001
    assert "end" in said["marks"]


def test_a_flood_of_lines_is_counted_and_not_kept(tmp_path: Path) -> None:
    script = "for n in range(40000): print('x' * 200)\nprint('stop')"
    _, said = run(tmp_path, script)
    assert said["lines"]["seen"] == 40_001
    assert said["lines"]["kept"] < 40_000
    assert "end" in said["marks"], "a mark is seen also where lines are not kept any more"
    assert (tmp_path / "lines.jsonl").stat().st_size <= 4 * 2**20


def test_a_line_without_end_takes_no_room(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    kept = Lines(str(tmp_path), 0, {"begin": "^start"})
    kept.begin(reading)
    os.write(writing, b"start")
    for _ in range(20):
        os.write(writing, b"y" * 8000)
        assert kept.read(1)
    os.close(writing)
    assert not kept.read(1)
    os.close(reading)
    assert kept.close() is None
    assert len(kept.marks["begin"]["text"]) == LONGEST
    assert kept.counts() == {"seen": 1, "kept": 1}


@pytest.mark.parametrize("key", ["argv", "marks"])
def test_a_wrong_specification_is_refused(tmp_path: Path, key: str) -> None:
    content = spec(tmp_path, "")
    del content["client"][key]
    process = start(tmp_path, content)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert "other keys than" in said
    assert not (tmp_path / "client.json").exists()
