"""Commands that are run again for each sample, and logs that are followed, as on a node."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import wait_for

from servemap.onnode import command_sampler, sources
from servemap.onnode.collector import Collector
from servemap.onnode.command_sampler import CommandSampler, with_pids
from servemap.onnode.log_source import MAX_LINE_BYTES, LogSource
from servemap.onnode.sources import AbsentError, CommandSource, find_program


def sampler(code: str, *more: str, each: str | None = None, keep: list[str] | None = None) -> Any:
    return CommandSampler([sys.executable, "-c", code, *more], each, keep or [], threading.Event())


def test_a_command_is_asked_in_no_language(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANG", "LC_ALL", "LC_NUMERIC"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    (record,) = sampler("import os; print(os.environ['LC_ALL'])").sample()
    assert record["text"] == "C\n"
    assert record["ms"] > 0
    assert "of" not in record


def test_a_command_that_fails_says_so_and_is_asked_again() -> None:
    asked = sampler("import sys; print('half'); sys.exit('no device')")
    for _ in range(2):
        (record,) = asked.sample()
        assert record["error"] == "status 1: no device"
        assert "text" not in record


def test_a_status_that_says_nothing_is_passed_over() -> None:
    code = "import sys; print(sys.argv[1], end=''); sys.exit(2)"
    for said, key in (("card0", "text"), ("", "error")):
        asked = CommandSampler(
            [sys.executable, "-c", code, said], None, [], threading.Event(), any_status=True
        )
        (record,) = asked.sample()
        assert key in record


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command_sampler, "ANSWER_S", 0.3)
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    asked = sampler(code)
    while not note.exists() or not note.read_text():
        (record,) = asked.sample()
        assert "gave no answer" in record["error"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_lines_without_any_of_the_words_are_not_kept() -> None:
    asked = sampler("print('rx_drop: 1\\nrx_bytes: 2\\ntx_err: 3')", keep=["drop", "err"])
    assert asked.sample()[0]["text"] == "rx_drop: 1\ntx_err: 3\n"


TELLS = "import sys; sys.exit('no stats') if sys.argv[1] == 'b' else print('of', sys.argv[1])"


def test_each_interface_is_asked_and_those_that_tell_nothing_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_sampler, "interfaces", lambda: ["a", "b", "c"])
    asked = sampler(TELLS, "{each}", each="interfaces")
    for _ in range(2):
        assert [(one["of"], one["text"]) for one in asked.sample()] == [
            ("a", "of a\n"),
            ("c", "of c\n"),
        ]
    monkeypatch.setattr(command_sampler, "interfaces", lambda: ["b"])
    with pytest.raises(AbsentError, match="no stats"):
        sampler(TELLS, "{each}", each="interfaces").sample()
    monkeypatch.setattr(command_sampler, "interfaces", list)
    with pytest.raises(AbsentError, match="no network interface"):
        sampler(TELLS, "{each}", each="interfaces")


def test_a_command_is_told_the_whole_process_tree() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as parent:
        try:
            wait_for(lambda: "," in with_pids(["{pids}"], [parent.pid])[0], "a child")
            (joined,) = with_pids(["{pids}"], [parent.pid])
            words = with_pids(["-p", "{pid}", "x"], [parent.pid])
        finally:
            assert parent.stdin is not None
            parent.stdin.close()
            assert parent.wait(20) is not None
    assert words == ["-p", *joined.split(","), "x"]
    assert joined.split(",")[0] == str(parent.pid)
    assert with_pids(["top"], []) == ["top"]
    for gone in ([], [parent.pid]):
        with pytest.raises(AbsentError, match="processes are not known"):
            with_pids(["-p{pids}"], gone)


def test_tools_are_found_where_a_path_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "sbin" / "made-up-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sources, "MORE_FOLDERS", (str(tool.parent),))
    assert find_program("made-up-tool") == str(tool)
    with pytest.raises(AbsentError, match="no program other-tool"):
        find_program("other-tool")


def test_the_piece_of_a_line_that_a_command_left_is_no_line(tmp_path: Path) -> None:
    code = "print('cpu 1'); print('cpu 12.', end='')"
    source = CommandSource([sys.executable, "-c", code], str(tmp_path / "e"), threading.Event())
    assert [record["line"] for record in source.lines()] == ["cpu 1"]
    assert source.ending().endswith("after 2 lines: cpu 12.")


class Following:
    """A log that is followed in a thread."""

    def __init__(self, path: Path, keep: list[str]) -> None:
        self.path, self.stop = path, threading.Event()
        self.found: list[str] = []
        self._source = LogSource(str(path), keep, self.stop)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for record in self._source.lines():
            self.found.append(record["line"])

    def add(self, text: str) -> None:
        with self.path.open("a") as handle:
            handle.write(text)

    def until(self, *lines: str) -> None:
        wait_for(lambda: self.found[-len(lines) :] == list(lines), f"lines {lines}")

    def end(self) -> None:
        self.stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def following(tmp_path: Path) -> Any:
    started: list[Following] = []

    def start(text: str, *keep: str) -> Following:
        path = tmp_path / "server.log"
        path.write_text(text)
        started.append(Following(path, list(keep)))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_lines_of_a_log_from_now_on(following: Callable[..., Following]) -> None:
    log = following("throughput before\n", "throughput")
    log.add("throughput 1\nother\nthrough")
    log.until("throughput 1")
    log.add("put 2\n")
    log.until("throughput 1", "throughput 2")
    assert len(log.found) == 2


def test_the_line_that_was_being_written_is_no_whole_one(
    following: Callable[..., Following],
) -> None:
    log = following("old\nAvg prompt through", "throughput")
    log.add("put: throughput 9\nthroughput 1\n")
    log.until("throughput 1")
    assert log.found == ["throughput 1"]


def test_a_log_that_was_replaced_or_cut_is_taken_up(following: Callable[..., Following]) -> None:
    log = following("", "throughput")
    log.add("throughput 1\n")
    log.until("throughput 1")
    log.path.rename(log.path.with_suffix(".old"))
    log.path.write_text("throughput 2\n")
    log.until("throughput 1", "throughput 2")
    log.path.write_text("")
    wait_for(lambda: log._source._handle.tell() == 0, "the cut to be seen")
    log.add("throughput 3\n")
    log.until("throughput 2", "throughput 3")


def test_a_line_without_an_end_takes_no_memory(following: Callable[..., Following]) -> None:
    log = following("", "throughput")
    log.add("x" * (MAX_LINE_BYTES + 1))
    wait_for(lambda: log._source._skip, "the long line to be given up")
    log.add("x throughput\nthroughput 1\n")
    log.until("throughput 1")
    assert log.found == ["throughput 1"]


def test_a_log_that_is_not_there_is_absent(tmp_path: Path) -> None:
    spec = {"name": "log", "kind": "log", "path": str(tmp_path / "none"), "keep": ["x"]}
    collector = Collector(spec, str(tmp_path), threading.Event())
    collector.thread.start()
    collector.thread.join(20)
    assert collector.record["status"] == "absent"
    assert "No such file" in collector.record["error"]


def test_a_log_that_says_nothing_is_well(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("")
    stop = threading.Event()
    spec = {"name": "log", "kind": "log", "path": str(tmp_path / "server.log"), "keep": ["x"]}
    collector = Collector(spec, str(tmp_path), stop)
    collector.thread.start()
    assert collector.sampled.wait(20)
    stop.set()
    collector.thread.join(20)
    assert (collector.record["status"], collector.record["samples"]) == ("ok", 0)
