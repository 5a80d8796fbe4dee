"""Samples of /proc: the formats, and a real tree of processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_process import wait_for

from servemap.onnode import proc_sampler
from servemap.onnode.proc_sampler import (
    ProcSampler,
    parse_cpu,
    parse_meminfo,
    parse_net_dev,
    parse_switches,
)

STAT = """cpu  30 2 12 400 8 0 2 4 0 0
cpu0 10 1 5 200 4 0 1 2 0 0
cpu11 20 1 7 200 4 0 1 2
intr 12345 0 0
ctxt 567441
btime 1795960000
processes 9501
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 1010 33 0 0 0 0 0 0 1010 33 0 0 0 0 0 0
eth0.5:70167 32502 1 2 0 0 0 9 17107 15269 3 4 0 0 0 0
br:0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
"""
TREE = """
import os, threading, time
child = os.fork()
if child == 0:
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    if os.fork() == 0:
        print("up", flush=True)
time.sleep(600)
"""


def test_cpu_rows_are_the_cores_without_the_sum() -> None:
    cores, totals = parse_cpu(STAT)
    assert cores == {"cpu0": [10, 1, 5, 200, 4, 0, 1, 2], "cpu11": [20, 1, 7, 200, 4, 0, 1, 2]}
    assert totals == {"ctxt": 567441, "processes": 9501}


def test_memory_that_the_kernel_lacks_is_absent() -> None:
    assert parse_meminfo("MemTotal:  2468 kB\nHugePages_Total: 0\nMemFree: 7 kB\n") == {
        "MemTotal": 2468,
        "MemFree": 7,
    }


def test_network_columns() -> None:
    assert parse_net_dev(NET) == {
        "lo": [1010, 33, 0, 0, 1010, 33, 0, 0],
        "eth0.5": [70167, 32502, 1, 2, 17107, 15269, 3, 4],
        "br:0": [1, 2, 3, 4, 9, 10, 11, 12],
    }


def test_switches_of_a_task() -> None:
    text = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"
    assert parse_switches(text) == (12, 3)
    with pytest.raises(ValueError, match="no context switches"):
        parse_switches("Name:\tx\n")


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def scan_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc_sampler, "RESCAN_S", 0.0)


def test_the_whole_tree_is_sampled_with_its_threads(scan_always: None) -> None:
    with running(TREE) as process:
        sampler = ProcSampler([process.pid])
        sample = sampler.sample()
        sampler.close()
    rows = {row["pid"]: row for row in sample["procs"]}
    assert len(rows) == 3
    child = next(row for row in rows.values() if row["ppid"] == process.pid)
    grandchild = next(row for row in rows.values() if row["ppid"] == child["pid"])
    assert [rows[process.pid]["threads"], child["threads"], grandchild["threads"]] == [1, 4, 1]
    assert all(row["rss_pages"] > 0 and row["start"] > 0 for row in rows.values())
    # Each of the four sleeping threads of the child gave up its core at least once.
    assert child["vcsw"] >= 4
    assert set(sample["cpu"]) == {f"cpu{n}" for n in range(os.cpu_count() or 0)}
    assert sample["mem"]["MemTotal"] > sample["mem"]["MemFree"] > 0
    assert "lo" in sample["net"]
    assert len(sample["load"]) == 3
    assert (sample["hz"], sample["page"]) == (os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE"))


def test_without_children_files_the_tree_is_the_same(
    scan_always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(pid: int) -> list[int]:
        raise FileNotFoundError("children")

    with running(TREE) as process:
        expected = set(proc_sampler.tree([process.pid]))
        monkeypatch.setattr(proc_sampler, "children_of", absent)
        assert set(proc_sampler.tree([process.pid])) == expected
    assert len(expected) == 3


def test_orphan_stays_in_the_sample_and_the_dead_leave_it(scan_always: None) -> None:
    with running(TREE) as process:
        sampler = ProcSampler([process.pid])
        before = {row["pid"] for row in sampler.sample()["procs"]}
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        after = {row["pid"] for row in sampler.sample()["procs"]}
        sampler.close()
    assert before - after == {process.pid}
    assert len(after) == 2


def test_process_born_later_is_found(scan_always: None) -> None:
    code = (
        "import os, sys, time; print('up', flush=True); sys.stdin.readline();"
        "os.fork(); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    sampler = ProcSampler([process.pid])
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert len(sampler.sample()["procs"]) == 1
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(lambda: len(sampler.sample()["procs"]) == 2, "the child in a sample")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        sampler.close()


def test_switches_beyond_the_limits_are_null_not_wrong(
    scan_always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(TREE) as process:
        monkeypatch.setattr(proc_sampler, "MAX_THREAD_FILES", 3)
        sampler = ProcSampler([process.pid])
        rows = {row["threads"]: row["vcsw"] for row in sampler.sample()["procs"]}
        assert rows[4] is None
        assert rows[1] is not None
        # The next reading is not due until the last one has cost less than its share of the time.
        monkeypatch.setattr(proc_sampler.time, "monotonic", lambda: 0.0)
        assert {row["vcsw"] for row in sampler.sample()["procs"]} == {None}
        sampler.close()


def test_no_files_stay_open(scan_always: None) -> None:
    with running(TREE) as process:
        before = len(list(Path("/proc/self/fd").iterdir()))
        sampler = ProcSampler([process.pid])
        sampler.sample()
        assert len(list(Path("/proc/self/fd").iterdir())) > before
        sampler.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
