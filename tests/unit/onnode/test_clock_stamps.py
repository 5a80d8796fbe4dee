"""Every epoch stamp that the agent takes comes from one clock, which tests may step."""

import threading
import time
from pathlib import Path

import pytest

from servemap.onnode import clock
from servemap.onnode.load_clock import take_anchor
from servemap.onnode.proc_sampler import ProcSampler
from servemap.onnode.sources import CommandSource, HttpSource

HOUR_NS = 3600 * 10**9


@pytest.fixture
def an_hour_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "skew").write_text(f"{HOUR_NS}\n")
    monkeypatch.setenv(clock.SKEW_FILE, str(tmp_path / "skew"))


def is_ahead(t_ns: int) -> bool:
    return abs(t_ns - time.time_ns() - HOUR_NS) < HOUR_NS / 2


@pytest.mark.usefixtures("an_hour_ahead")
def test_all_stamps_follow_the_nodes_clock(tmp_path: Path) -> None:
    assert is_ahead(take_anchor().wall_ns)
    sampler = ProcSampler([])
    assert is_ahead(sampler.sample()["t_ns"])
    sampler.close()
    assert is_ahead(HttpSource("http://127.0.0.1:1/metrics").sample()["t_ns"])
    said = CommandSource(["echo", "hello"], str(tmp_path / "err"), threading.Event()).lines()
    assert [(is_ahead(line["t_ns"]), line["line"]) for line in said] == [(True, "hello")]


def test_the_monotonic_clock_does_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = take_anchor()
    (tmp_path / "skew").write_text(str(HOUR_NS))
    monkeypatch.setenv(clock.SKEW_FILE, str(tmp_path / "skew"))
    after = take_anchor()
    assert after.mono_ns - before.mono_ns < HOUR_NS / 2
    assert abs(after.epoch_ns - before.epoch_ns - HOUR_NS) < HOUR_NS / 2
