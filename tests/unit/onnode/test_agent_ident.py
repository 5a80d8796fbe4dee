"""Identities of processes and leases."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.ident import (
    Stat,
    descendants,
    is_alive,
    machine_boot_id,
    parse_stat,
    read_stat,
)
from servemap.onnode.lease import Lease

LINE = (
    "4242 ({comm}) S 1 4240 4239 0 -1 4194304 100 0 0 0 55 7 0 0 20 0 9 0 987654 1000 2048 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
)


def a_process(pid: int, ppid: int) -> Stat:
    return parse_stat(LINE.format(comm="x"))._replace(pid=pid, ppid=ppid)


@given(st.text(min_size=1, max_size=15))
def test_every_name_of_a_process_is_parsed(comm: str) -> None:
    stat = parse_stat(LINE.format(comm=comm))
    assert stat == Stat(4242, comm, "S", 1, 4240, 4239, 55, 7, 9, 987654, 2048)


@pytest.mark.parametrize("text", ["", "1 (a", "1 (a) S 1", ") 1 ("])
def test_what_is_no_stat_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a /proc"):
        parse_stat(text)


def test_this_process_is_read_as_the_system_knows_it() -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    assert (stat.ppid, stat.pgrp, stat.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 < stat.start / os.sysconf("SC_CLK_TCK") <= uptime_s
    assert is_alive(stat.pid, stat.start)
    assert not is_alive(stat.pid, stat.start + 1)


def test_descendants_are_found_through_every_generation() -> None:
    stats = [a_process(5, 4), a_process(4, 2), a_process(3, 2), a_process(2, 1), a_process(9, 8)]
    assert [stat.pid for stat in descendants(2, stats)] == [4, 3, 5]
    assert descendants(9, stats) == []


def test_boot_id_is_a_uuid() -> None:
    assert [len(part) for part in machine_boot_id().split("-")] == [8, 4, 4, 4, 12]


def test_lease_follows_its_heartbeat(tmp_path: Path) -> None:
    heartbeat = tmp_path / "heartbeat"
    heartbeat.touch()
    lease = Lease(str(heartbeat), 60)
    assert not lease.expired()
    old_s = time.time() - 61
    os.utime(heartbeat, (old_s, old_s))
    assert lease.expired()
    heartbeat.touch()
    assert not lease.expired()
    heartbeat.unlink()
    assert not lease.expired(), "a file that is gone is as old as it was when last seen"


def test_lease_survives_steps_of_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = tmp_path / "heartbeat"
    heartbeat.touch()
    lease = Lease(str(heartbeat), 60)
    assert not lease.expired()
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 3600 * 10**9)
    assert not lease.expired()
    later_s = time.time() + 7200
    os.utime(heartbeat, (later_s, later_s))
    assert not lease.expired(), "a heartbeat from the future is a fresh one"


def test_lease_without_a_heartbeat_counts_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(str(tmp_path / "absent"), 60)
    assert not lease.expired()
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 61)
    assert lease.expired()
