"""Tools that flood, hang, or leave something behind: what is kept of them, and that they end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, agent_argv, wait_for
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import command_sampler, end_loads, probe, sources, tool
from servemap.onnode.collector import FAILING_RUNS, Collector
from servemap.onnode.ident import is_alive, read_stat
from servemap.onnode.sources import CommandSource, HttpSource
from servemap.onnode.tool import END_BYTES, Ends, run

# Prints the pid of a child that sleeps: in its session or out of it, holding its pipes or not.
LEAVING = """
import os, subprocess, sys, time
session, pipes, ending = sys.argv[1] == "out", sys.argv[2] == "held", sys.argv[3]
quiet = None if pipes else subprocess.DEVNULL
env = {} if ending == "bare" else None
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=quiet,
    stdout=quiet, stderr=quiet, start_new_session=session, env=env)
print("child", child.pid, flush=True)
if ending != "ends": time.sleep(600)
child.returncode = 0
"""
FLOODS = "import sys\nwhile True: sys.{}.write('x' * 1023 + chr(10))"


def leaving(folder: Path, *words: str) -> list[str]:
    path = folder / "leaving.py"
    path.write_text(LEAVING)
    return [sys.executable, str(path), *words]


def gone(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"


class Running:
    """A `collect` process over some collectors."""

    def __init__(self, folder: Path, *collectors: dict[str, Any]) -> None:
        self.out = folder / "out"
        spec = {
            "schema": 1,
            "out": str(self.out),
            "node": "head",
            "ready_file": str(self.out / "collect.ready"),
            "collectors": list(collectors),
        }
        path = folder / "spec.json"
        path.write_text(json.dumps(spec))
        env = {**os.environ, **end_loads.mark("load", str(folder))}
        self.process = subprocess.Popen(agent_argv("collect", "--spec", str(path)), env=env)

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.out / name
        whole = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in whole]

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0
        return json.loads((self.out / "collectors.json").read_text())["collectors"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*collectors: dict[str, Any]) -> Running:
        started.append(Running(tmp_path, *collectors))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait(WAIT_S)
    end_loads.answer(str(tmp_path), "load", None, 0.0)


@pytest.mark.parametrize("session", ["in", "out"])
def test_the_end_of_a_command_is_noticed_though_a_child_holds_its_pipe(
    running: Callable[..., Running], tmp_path: Path, session: str
) -> None:
    argv = leaving(tmp_path, session, "held", "ends")
    collecting = running({"name": "t", "kind": "command", "argv": argv})
    (event,) = wait_for(lambda: collecting.lines("collect.events.jsonl"), "an event")
    assert event["event"] == "exited"
    assert "ended early with status 0 after 1 lines: child" in event["error"]
    child = int(collecting.lines("t.jsonl")[0]["line"].split()[1])
    wait_for(lambda: gone(child), "the end of its child")
    assert collecting.stop()["t"]["status"] == "failed"


@pytest.mark.parametrize("ending", ["stays", "bare"])
@pytest.mark.parametrize("session", ["in", "out"])
@pytest.mark.parametrize("pipes", ["held", "closed"])
def test_all_that_a_command_started_ends_with_the_collectors(
    running: Callable[..., Running], tmp_path: Path, session: str, pipes: str, ending: str
) -> None:
    argv = leaving(tmp_path, session, pipes, ending)
    collecting = running({"name": "t", "kind": "command", "argv": argv})
    (row,) = wait_for(lambda: collecting.lines("t.jsonl"), "a line")
    assert collecting.stop()["t"]["status"] == "ok"
    assert gone(int(row["line"].split()[1]))


@pytest.mark.parametrize("pipes", ["held", "closed"])
def test_all_that_a_polled_tool_left_ends_with_the_collectors(
    running: Callable[..., Running], tmp_path: Path, pipes: str
) -> None:
    argv = leaving(tmp_path, "out", pipes, "ends")
    collecting = running({"name": "t", "kind": "poll", "argv": argv, "interval_s": 0.1})
    wait_for(lambda: len(collecting.lines("t.jsonl")) > 1, "two samples")
    assert collecting.stop()["t"]["status"] == "ok"
    pids = [int(row["text"].split()[1]) for row in collecting.lines("t.jsonl")]
    assert all(map(gone, pids))


def test_tools_of_collectors_that_were_killed_are_found_by_the_mark_of_their_load(
    running: Callable[..., Running], tmp_path: Path
) -> None:
    argv = leaving(tmp_path, "out", "held", "stays")
    collecting = running(
        {"name": "t", "kind": "command", "argv": argv},
        {"name": "p", "kind": "poll", "argv": ["sleep", "600"], "interval_s": 1},
    )
    (row,) = wait_for(lambda: collecting.lines("t.jsonl"), "a line")
    child = int(row["line"].split()[1])
    collecting.process.kill()
    collecting.process.wait(WAIT_S)
    assert not gone(child)
    said = end_loads.answer(str(tmp_path), "load", None, 0.0)
    assert said["left"] == []
    assert not [one for one in said["met"] if is_alive(one["pid"], one["start"])]
    assert gone(child)


def collected(spec: dict[str, Any], folder: Path, stop: threading.Event) -> Collector:
    collector = Collector({"name": "t", **spec}, str(folder), stop)
    collector.thread.start()
    return collector


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_that_floods_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stream: str
) -> None:
    monkeypatch.setattr(sources, "BURST_BYTES", 1 << 20)
    monkeypatch.setattr(sources, "BYTES_PER_S", 0)
    argv = [sys.executable, "-c", FLOODS.format(stream)]
    collector = collected({"kind": "command", "argv": argv}, tmp_path, threading.Event())
    collector.thread.join(WAIT_S)
    assert collector.record["status"] == "failed"
    assert "more than a collector may write" in collector.record["error"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 << 20


def test_a_polled_tool_that_floods_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources, "BURST_BYTES", 1 << 12)
    monkeypatch.setattr(sources, "BYTES_PER_S", 0)
    spec = {"kind": "poll", "argv": [sys.executable, "-c", "print('x' * 1000)"], "interval_s": 0.01}
    collector = collected(spec, tmp_path, threading.Event())
    collector.thread.join(WAIT_S)
    assert collector.record["status"] == "failed"
    assert "more than a collector may write" in collector.record["error"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_takes_no_memory(stream: str) -> None:
    said = run(
        [sys.executable, "-c", FLOODS.format(stream)], 0.5 if stream == "stderr" else 60, 4096
    )
    assert said.code is None
    assert said.too_much == (stream == "stdout")
    assert len(said.out) < 4096 + tool.BLOCK
    assert len(said.err) < 2 * END_BYTES + 100


@given(st.lists(st.binary(max_size=END_BYTES), max_size=6))
def test_first_and_last_of_what_was_written_are_kept(blocks: list[bytes]) -> None:
    ends = Ends()
    for block in blocks:
        ends.add(block)
    whole = b"".join(blocks)
    lost = len(whole) - 2 * END_BYTES
    if lost > 0:
        gap = b"\n[%d bytes are left out]\n" % lost
        whole = whole[:END_BYTES] + gap + whole[-END_BYTES:]
    assert ends.text() == whole.decode("utf-8", "replace")


def test_stderr_of_a_command_keeps_its_first_and_its_last_words(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('first\\n' + 'x\\n' * 200000 + 'last words\\n')"
    path = tmp_path / "err"
    source = CommandSource([sys.executable, "-c", code], str(path), threading.Event())
    assert list(source.lines()) == []
    assert source.ending().endswith("last words")
    said = path.read_text()
    assert said.startswith("first\n") and said.endswith("last words\n")
    assert "bytes are left out" in said and len(said) < 2 * END_BYTES + 100


def test_a_line_without_an_end_is_no_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1000)
    code = "print('x' * 300000); print('cpu 1')"
    source = CommandSource([sys.executable, "-c", code], str(tmp_path / "e"), threading.Event())
    assert [record["line"] for record in source.lines()] == ["cpu 1"]


def test_a_look_at_a_tool_ends_with_the_tool(tmp_path: Path) -> None:
    record = probe.run_tool(leaving(tmp_path, "out", "held", "ends"), timeout_s=WAIT_S)
    assert record["code"] == 0
    wait_for(lambda: gone(int(record["stdout"].split()[1])), "the end of its child")


FAILING = """
import os, sys
path = sys.argv[1]
with open(path, "a") as handle: handle.write("x")
runs = os.path.getsize(path)
if runs in range(*map(int, sys.argv[2:])): sys.exit("my card fell off the bus")
print("card 0", runs)
"""


def failing(folder: Path, first: int, last: int) -> dict[str, Any]:
    path = folder / "runs"
    argv = [sys.executable, "-c", FAILING, str(path), str(first), str(last)]
    return {"kind": "poll", "argv": argv, "interval_s": 0.05}


def test_a_tool_that_goes_on_failing_fails_its_collector(
    running: Callable[..., Running], tmp_path: Path
) -> None:
    collecting = running({"name": "t", **failing(tmp_path, 3, 10**6)})
    (event,) = wait_for(lambda: collecting.lines("collect.events.jsonl"), "an event")
    assert event["event"] == "failing"
    assert event["error"].endswith("runs failed: status 1: my card fell off the bus")
    record = collecting.stop()["t"]
    assert (record["status"], record["samples"]) == ("failed", 2)
    assert record["errors"] >= FAILING_RUNS
    assert record["error"].endswith("my card fell off the bus")


def test_a_tool_that_failed_and_answers_again_is_well(tmp_path: Path) -> None:
    stop = threading.Event()
    collector = collected(failing(tmp_path, 2, 3 + FAILING_RUNS), tmp_path, stop)
    wait_for(lambda: collector.record["samples"] > 1, "an answer after the failures")
    stop.set()
    collector.thread.join(WAIT_S)
    record = collector.record
    assert (record["status"], record["errors"]) == ("ok", 1 + FAILING_RUNS)
    assert collector.failing is None


def test_hanging_interfaces_do_not_add_up_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_sampler, "interfaces", lambda: [str(n) for n in range(100)])
    monkeypatch.setattr(command_sampler, "ANSWER_S", 0.3)
    stop = threading.Event()
    stop.set()
    argv = ["sleep", "600"]
    asked = command_sampler.CommandSampler(argv, "interfaces", [], stop)
    with pytest.raises(sources.AbsentError, match="gave no answer"):
        asked.sample()
    assert asked.sample() == []


def test_a_sample_has_the_middle_of_its_asking() -> None:
    code = "import time; print(time.time_ns()); time.sleep(0.2); print(time.time_ns())"
    asked = command_sampler.CommandSampler(
        [sys.executable, "-c", code], None, [], threading.Event()
    )
    (record,) = asked.sample()
    half_ns = record["ms"] * 1e6 / 2
    for said_ns in map(int, record["text"].split()):
        assert abs(said_ns - record["t_ns"]) <= half_ns + 2e6


PAGES = {
    "cut in a number": b"HTTP/1.0 200 OK\r\n\r\nrunning 3\ntokens_total 12",
    "shorter than said": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nrunning 3\n",
    "cut in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nrunning 3\n",
    "whole": b"HTTP/1.0 200 OK\r\n\r\nrunning 3\n",
}


@pytest.fixture
def answering() -> Iterator[Callable[[bytes, bytes], str]]:
    """Start servers that answer with bytes and then drip one byte again and again."""
    closing: list[Callable[[], None]] = []

    def start(page: bytes, drip: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        done = threading.Event()

        def serve() -> None:
            with listening.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(page)
                try:
                    while drip and not done.wait(0.02):
                        peer.sendall(drip)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()

        def end() -> None:
            done.set()
            thread.join(WAIT_S)
            listening.close()

        closing.append(end)
        return f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"

    yield start
    for end in closing:
        end()


@pytest.mark.parametrize("what", PAGES)
def test_a_page_that_was_cut_is_no_page(
    answering: Callable[[bytes, bytes], str], what: str
) -> None:
    source = HttpSource(answering(PAGES[what], b""))
    record = source.sample()
    source.close()
    assert ("text" in record) == (what == "whole")
    assert ("error" in record) == (what != "whole")


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"]
)
def test_a_page_that_trickles_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, answering: Callable[[bytes, bytes], str], begin: bytes
) -> None:
    monkeypatch.setattr(sources, "HTTP_TIMEOUT_S", 0.5)
    source = HttpSource(answering(begin, b"#"))
    record = source.sample()
    source.close()
    assert record["error"] == "no whole page in 0.5 s"
