"""The embedded engine on several nodes: its ranks join, and none outlives another."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servemap.engines.base import Placement
from servemap.engines.embedded.tiny_model import install
from servemap.engines.llamacpp import LlamaCpp
from servemap.model.server_spec import ModelSpec, ServerSpec, Settings
from tests.workflow.harness import free_port

pytestmark = pytest.mark.e2e

Start = Callable[[int], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start rank N of two; its log is N.log."""
    install(tmp_path)
    model = ModelSpec(name="tiny", path=str(tmp_path / "tiny.gguf"), context=2048, vocab=(300, 900))
    server = ServerSpec(
        engine="llamacpp", port=free_port(), settings=Settings(max_active=2), args={"n_threads": 1}
    )
    meeting = free_port()
    running: list[subprocess.Popen[bytes]] = []

    def begin(rank: int) -> subprocess.Popen[bytes]:
        place = Placement(f"n{rank}", rank, 2, master_port=meeting)
        argv = LlamaCpp().argv(server, model, place, python=sys.executable, workdir="/")
        with (tmp_path / f"{rank}.log").open("ab") as log:
            process = subprocess.Popen(
                argv, cwd=tmp_path / "engine", stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
        time.sleep(0.05)


@pytest.mark.parametrize(("lost", "left"), [(0, 1), (1, 0)])
def test_the_server_waits_for_its_ranks_and_ends_with_them(
    start: Start, tmp_path: Path, lost: int, left: int
) -> None:
    head = start(0)
    wait_for(tmp_path / "0.log", "waiting for rank 1 of 2")
    assert "ready" not in (tmp_path / "0.log").read_text()
    ranks = {0: head, 1: start(1)}
    wait_for(tmp_path / "0.log", "llamaserve: ready")
    ranks[lost].send_signal(signal.SIGKILL)
    assert ranks[left].wait(60) == 1
    assert (tmp_path / f"{left}.log").read_text().endswith(f"error: rank {lost} is gone\n")


def test_a_rank_ends_in_order_when_it_is_told_to(start: Start, tmp_path: Path) -> None:
    worker = start(1)
    wait_for(tmp_path / "1.log", "rank 1 waits for rank 0")
    worker.terminate()
    assert worker.wait(60) == 0
    assert "stopped by SIGTERM" in (tmp_path / "1.log").read_text()
