"""Collectives through the torch of an engine: two ranks of one node over its loopback."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.measure.baseline import run_baseline
from servemap.measure.setup import load_context
from servemap.parsers.communication.busbw import busbw_factor
from servemap.server.context import Context
from tests.e2e.test_container import free_port
from tests.fakes import campaign
from tests.parts import need

pytestmark = pytest.mark.e2e
SCRIPT = "torch_ranks.py"
OUTPUT = Path("coll.json")


@pytest.fixture
def torch_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return need("vllm")


def collective(python: str, **keys: Any) -> Context:
    baseline = {
        "id": "coll", "kind": "collective", "python": python, "ranks_per_node": 2,
        "sizes": ["8K", "1M"], "iterations": 3, "warmup": 1, **keys,
    }  # fmt: skip
    context = load_context(
        campaign(
            baselines=[baseline],
            phases=[{"id": "phase1", "baselines": ["coll"]}],
            server={"engine": "llamacpp", "port": 18999, "master_port": free_port()},
        )
    )
    context.run_dir.mkdir(parents=True)
    return context


def ranks_left() -> list[int]:
    """The ranks of this test that still run, by the folder that they were started in."""
    here = str(Path.cwd())
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.startswith(here) and word.endswith(SCRIPT) for word in words):
            found.append(process.pid)
    return found


def test_two_ranks_measure_all_operations_and_their_values_are_right(torch_python: str) -> None:
    record = run_baseline(collective(torch_python), "coll", 1, OUTPUT)
    assert record["status"] == "ok", record["reasons"]
    (part,) = record["results"]
    assert (part["backend"], part["world"], part["simulated"]) == ("gloo", 2, False)
    assert [rank["local_rank"] for rank in part["ranks"]] == [0, 1]
    assert {"torch", "python"} <= part["versions"].keys()
    names = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    got = [(row["operation"], row["size_bytes"]) for row in part["rows"]]
    assert got == [(name, size) for name in names for size in (8192, 1 << 20)]
    for row in part["rows"]:
        assert (row["wrong"], row["iterations"], len(row["rank_mean_s"])) == (0, 3, 2)
        factor = busbw_factor(row["operation"], 2)
        assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * factor)
    assert part["files"] == ["raw/01-n1.log"]
    assert Path("results/r/baselines/raw/coll/001/raw/01-n1.log").is_file()
    assert not ranks_left()


def test_a_rank_that_is_killed_is_named_and_the_next_part_is_measured(torch_python: str) -> None:
    context = collective(torch_python, sweep={"PART": [1, 2]}, operations=["all_reduce"])
    done = threading.Event()

    def kill_one() -> None:
        while not done.wait(0.02):
            ranks = [pid for pid in ranks_left() if local_rank(pid) == "1"]
            if ranks:
                os.kill(ranks[0], signal.SIGKILL)
                return

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        record = run_baseline(context, "coll", 1, OUTPUT)
    finally:
        done.set()
        killer.join()
    first, second = record["results"]
    assert record["status"] == "failed"
    assert "local rank 1 was ended by signal 9" in first["error"]
    assert first["rows"] == []
    assert (second["status"], second["settings"]) == ("ok", {"PART": "2"})
    assert len(second["rows"]) == 2
    assert not ranks_left()


def local_rank(pid: int) -> str | None:
    try:
        return psutil.Process(pid).environ().get("LOCAL_RANK")
    except psutil.Error:
        return None
