"""Locks with real processes: released by the kernel, named, fenced by identity."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from servemap.model.errors import LockedError, ResultsError, ServemapError
from servemap.server.locks import (
    controller_alive,
    describe_self,
    fence_orphan,
    holder_alive,
    read_holder,
    say_holder,
    server_lock,
    try_lock,
)
from tests.waiting import WAIT_S

HOLD = """
import sys, time
from pathlib import Path
from servemap.server.locks import describe_self, try_lock
handle = try_lock(Path(sys.argv[1]), describe_self(job=sys.argv[2]))
print("held", flush=True)
time.sleep(120)
"""


class Holder:
    """Another process that holds a lock."""

    def __init__(self, path: Path, job: str = "case a/b r1") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), job], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    other = Holder(tmp_path / ".server.lock")
    yield other
    other.kill()


def test_kill_9_releases_the_lock(tmp_path: Path, holder: Holder) -> None:
    path = tmp_path / ".server.lock"
    assert try_lock(path, describe_self()) is None
    assert read_holder(path)["pid"] == holder.process.pid, "a refused try overwrites nothing"
    assert holder_alive(read_holder(path))
    holder.kill()
    assert not holder_alive(read_holder(path))
    handle = try_lock(path, describe_self(job="next"))
    assert handle is not None
    assert read_holder(path)["job"] == "next"
    handle.close()


def test_a_lock_whose_file_was_removed_meanwhile_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder takes a run that never began away again, between our opening and our locking."""
    path = tmp_path / "run" / ".lock"
    lock = fcntl.flock

    def removed(handle: TextIO, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        path.unlink()
        path.parent.rmdir()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    mine = try_lock(path, describe_self())
    assert mine is not None
    assert try_lock(path, describe_self()) is None, "both would drive the run"
    mine.close()


def test_who_holds_it_is_said(tmp_path: Path, holder: Holder) -> None:
    with pytest.raises(LockedError) as caught, server_lock(tmp_path, "launch v", timeout_s=0.1):
        raise AssertionError("it was free")
    said = str(caught.value)
    assert f"pid {holder.process.pid} of " in said
    assert "for case a/b r1" in said
    assert say_holder({}).startswith("pid ? of ? on ? since 1970"[:20])


def test_the_lock_is_free_after_an_error_of_its_holder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), server_lock(tmp_path, "one"):
        raise ZeroDivisionError
    with server_lock(tmp_path, "two", timeout_s=0.1):
        assert read_holder(tmp_path / ".server.lock")["job"] == "two"


def test_an_orphan_is_killed_and_named(tmp_path: Path, holder: Holder) -> None:
    fenced = fence_orphan(tmp_path)
    assert fenced is not None
    assert fenced["job"] == "case a/b r1"
    assert holder.process.wait(WAIT_S) == -signal.SIGKILL
    assert fence_orphan(tmp_path) is None, "nobody is left to fence"


@pytest.mark.parametrize("field", ["start", "boot_id"])
def test_only_the_recorded_process_is_killed(tmp_path: Path, holder: Holder, field: str) -> None:
    """The pid in the lock was given to another process, or is of another boot."""
    path = tmp_path / ".server.lock"
    record = read_holder(path)
    changed = {"start": record["start"] + 1, "boot_id": "another"}[field]
    path.write_text(json.dumps({**record, field: changed}))
    with pytest.raises(LockedError, match="still held"):
        fence_orphan(tmp_path, timeout_s=0.3)
    assert holder.process.poll() is None


def test_a_garbled_holder_kills_nobody(tmp_path: Path, holder: Holder) -> None:
    (tmp_path / ".server.lock").write_text('{"pid": 1, "sta')
    with pytest.raises(LockedError):
        fence_orphan(tmp_path, timeout_s=0.2)
    assert holder.process.poll() is None


def test_an_orphan_of_another_user_is_not_ours_to_kill(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patched, pytest.raises(LockedError, match="another user"):
        patched.setattr(os, "kill", kill)
        fence_orphan(tmp_path)
    assert holder.process.poll() is None


def test_an_orphan_that_ends_by_itself_just_then(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", lambda pid, number: _gone(holder, pid))
        assert fence_orphan(tmp_path) is not None


def _gone(holder: Holder, pid: int) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
    holder.process.wait()
    raise ProcessLookupError


@pytest.mark.parametrize("blocked", ["folder in place of the lock", "file in place of the run"])
def test_a_lock_that_cannot_be_written_is_an_error_in_words(tmp_path: Path, blocked: str) -> None:
    run = tmp_path / "run"
    if blocked.startswith("folder"):
        (run / ".server.lock").mkdir(parents=True)
    else:
        run.write_text("")
    with pytest.raises(ResultsError) as caught, server_lock(run, "case"):
        raise AssertionError("it cannot be held")
    assert "remedy: let this user write" in str(caught.value)
    assert isinstance(caught.value, ServemapError)


def test_a_controller_is_dead_only_if_its_record_says_who_died(tmp_path: Path) -> None:
    path = tmp_path / ".session.json"
    assert controller_alive(tmp_path), "no record proves no death"
    path.write_text("{")
    assert controller_alive(tmp_path)
    path.write_text(json.dumps(describe_self()))
    assert controller_alive(tmp_path)
    child = subprocess.Popen(["sleep", "60"])
    stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    path.write_text(json.dumps({**describe_self(), "pid": child.pid, "start": int(stat[19])}))
    assert controller_alive(tmp_path)
    child.kill()
    child.wait()
    assert not controller_alive(tmp_path)
    path.write_text(json.dumps({**describe_self(), "boot_id": "before the reboot"}))
    assert not controller_alive(tmp_path)


def test_since_is_a_time_that_people_read() -> None:
    said = say_holder({"pid": 1, "user": "u", "host": "h", "since_ns": time.time_ns()})
    assert time.strftime("%Y-%m-%d") in said


@pytest.mark.parametrize("since", [None, "yesterday", [], 1e300, float("inf"), float("nan")])
def test_a_holder_of_no_known_time_is_still_said(since: object) -> None:
    said = say_holder({"pid": 7, "user": "ann", "host": "h", "since_ns": since})
    assert said == "pid 7 of ann on h since ?"


def test_a_holder_without_a_whole_identity_is_not_alive() -> None:
    assert not holder_alive({"pid": float("inf"), "start": 1, "boot_id": "x"})
