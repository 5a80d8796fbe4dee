"""Collective baselines seen through: parts, words for what failed, what is left behind.

The interpreters are made-up ones that print what ranks print; everything else is real.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.measure.baseline import run_baseline
from servemap.measure.baselines import attend
from servemap.measure.progress import baseline_line
from servemap.measure.setup import load_context
from servemap.model.attempts import intact, read_records
from servemap.model.baselines import CollectiveBaseline
from servemap.server.context import Context
from servemap.server.launch import process
from tests.fakes import campaign

OUTPUT = Path("coll.json")
PORTS: list[int] = []

# Says what two ranks of torch say, of the plan that it is given.
RANKS = """
import json, os, sys
plan = json.loads(sys.argv[-1])
world = 2
def say(**facts):
    print("servemap-rank " + json.dumps(facts), flush=True)
for rank in range(world):
    say(rank=rank, world=world, local_rank=rank, host="h", backend="gloo", torch="9.9",
        python="3.8", nccl=None, device="cpu", value=os.environ.get("PART"))
for operation in plan["operations"]:
    for size in plan["sizes"]:
        for rank in range(world):
            say(rank=rank, operation=operation, size_bytes=size, count=size // 4,
                type="float32", times_ns=[1000 * (rank + 1)] * plan["iterations"],
                wrong=int(os.environ.get("WRONG", 0)))
for rank in range(world):
    say(rank=rank, done=True)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    left = [one for one in psutil.Process().children(recursive=True) if "python" in str(one)]
    assert not [one.pid for one in left if str(tmp_path) in " ".join(one.cmdline())]


def interpreter(tmp_path: Path, program: str = RANKS) -> str:
    """A program that is called as an interpreter would be, and does what a test says."""
    path = tmp_path / "python-of-test"
    path.write_text(f"#!/usr/bin/env python3\n{program}")
    path.chmod(0o755)
    return str(path)


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has collected yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        PORTS.append(int(sock.getsockname()[1]))
    return PORTS[-1]


def context_of(python: str, **keys: Any) -> Context:
    baseline = {
        "id": "coll", "kind": "collective", "python": python, "ranks_per_node": 2,
        "sizes": ["8K", "1M"], "operations": ["all_reduce"], "iterations": 3, **keys,
    }  # fmt: skip
    server = {"engine": "llamacpp", "port": 18999, "master_port": free_port()}
    phases = [{"id": "phase1", "baselines": ["coll"]}]
    context = load_context(campaign(baselines=[baseline], phases=phases, server=server))
    context.run_dir.mkdir(parents=True, exist_ok=True)
    return context


def run(context: Context, token: int = 1) -> dict[str, Any]:
    record = run_baseline(context, "coll", token, OUTPUT)
    assert json.loads(OUTPUT.read_text()) == record
    folder = Path(attend.folder_on(context, "n1"))
    assert not folder.exists(), "nothing is left on the node"
    return record


def test_each_value_of_the_sweep_is_a_part_of_the_record(tmp_path: Path) -> None:
    context = context_of(interpreter(tmp_path), sweep={"PART": [0, 1], "OTHER": ["a"]})
    record = run(context)
    assert (record["status"], record["simulated"], record["reused"]) == ("ok", False, None)
    settings = [part["settings"] for part in record["results"]]
    assert settings == [{"PART": "0", "OTHER": "a"}, {"PART": "1", "OTHER": "a"}]
    for part in record["results"]:
        assert (part["world"], part["backend"], part["versions"]["torch"]) == (2, "gloo", "9.9")
        assert [row["size_bytes"] for row in part["rows"]] == [8192, 1 << 20]
        # 8192 bytes in the 2 us of the slower rank.
        assert part["rows"][0]["busbw_bytes_per_s"] == pytest.approx(8192 / 2e-6)
        (command,) = part["commands"]
        assert command["env"]["NODE_SAYS"] == "hello"
    (kept,) = read_records(context.run_dir / "baselines/raw/coll")
    assert sorted(kept.files) == ["raw/01-n1.log", "raw/02-n1.log"]
    assert intact(kept)
    assert '"value": "1"' in (kept.folder / "raw/02-n1.log").read_text()
    assert baseline_line(record) == "baseline coll: ok, 2 parts"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit('ModuleNotFoundError: No module named \\'torch\\'')",
         "has no torch"),
        ("import sys; print('DistNetworkError: EADDRINUSE, message: address already in use');"
         " sys.exit(1)", "is in use"),
        ("import sys; print('E1130 api.py] failed (exitcode: -9) local_rank: 1 (pid: 7) of');"
         " sys.exit(1)", "local rank 1 was ended by signal 9"),
        ("import sys; print('ValueError: a made-up one'); sys.exit(3)",
         "exit code 3: ValueError: a made-up one") ,
        ("pass", "rank 0, 1 did not come to its end"),
        (RANKS.replace('say(rank=rank, done=True)', 'say(rank=rank, error="CudaError: lost")'),
         "rank 0 on n1: CudaError: lost"),
        (RANKS.replace("for size in plan[\"sizes\"]:", "for size in plan[\"sizes\"][:1]:"),
         "not measured: all_reduce of 1048576 bytes"),
        (RANKS.replace("[1000 * (rank + 1)]", "[1000 * rank]"), "no times of rank 0"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_said_in_words_and_no_figure_is_kept(
    tmp_path: Path, program: str, said: str
) -> None:
    record = run(context_of(interpreter(tmp_path, program)))
    assert (record["status"], record["cause"]) == ("failed", None)
    (part,) = record["results"]
    assert said in part["error"]
    assert said in record["reasons"][0]
    assert part["rows"] == []
    assert "Traceback" not in record["reasons"][0]


def test_wrong_values_are_no_measurement(tmp_path: Path) -> None:
    record = run(context_of(interpreter(tmp_path), env={"WRONG": "3"}))
    assert record["status"] == "failed"
    assert "all_reduce of 8192 bytes: 6 values are wrong" in record["reasons"][0]


def test_an_interpreter_that_is_not_there_is_named_with_its_key(tmp_path: Path) -> None:
    record = run(context_of(str(tmp_path / "no-python")))
    (reason,) = record["reasons"]
    assert f"{tmp_path}/no-python cannot be started" in reason
    assert "where: baselines.coll.python" in reason


def test_a_part_that_fails_costs_no_other(tmp_path: Path) -> None:
    program = "import os, sys\nif os.environ['PART'] == '1': sys.exit(1)\n" + RANKS
    record = run(context_of(interpreter(tmp_path, program), sweep={"PART": [0, 1, 2]}))
    assert [part["status"] for part in record["results"]] == ["ok", "failed", "ok"]
    assert record["status"] == "failed"
    assert record["reasons"][0].startswith("n1 PART=1: ")


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write('%d %d' % (os.getpid(), child.pid))\n"
        "time.sleep(300)\n"
    )
    context = context_of(interpreter(tmp_path, program), timeout_s=2)
    record = run(context)
    assert "n1: not done within 2 s, and was ended" in record["reasons"][0]
    for pid in map(int, pids.read_text().split()):
        assert not runs(pid)


def test_a_supervisor_that_is_killed_ends_the_part_and_what_it_ran(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "import os, signal, time\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "time.sleep(300)\n"
    )
    record = run(context_of(interpreter(tmp_path, program)))
    assert "the supervisor of the ranks was killed" in record["reasons"][0]
    assert not runs(int(pid.read_text()))


def test_what_a_dead_controller_left_is_ended_first(tmp_path: Path) -> None:
    context = context_of(interpreter(tmp_path))
    node, folder = context.nodes["n1"], attend.folder_on(context, "n1")
    left = process.start(
        node, folder, boot_id="b-left", variant="baseline coll", fingerprint="", port=0,
        argv=["sleep", "300"], env={}, secrets={}, cwd=None, ttl_s=60, grace_s=0.1,
    )  # fmt: skip
    assert run(context)["status"] == "ok"
    assert not node.alive(left.supervisor)


def test_a_port_that_another_program_holds_is_named_before_anything_is_started(
    tmp_path: Path,
) -> None:
    context = context_of(interpreter(tmp_path))
    port = context.plan.campaign.server.master_port
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        record = run(context)
    assert (record["status"], record["results"]) == ("failed", [])
    assert f"127.0.0.1 port {port}" in record["reasons"][0]
    assert f"pid {os.getpid()}" in record["reasons"][0]


def test_a_stop_while_it_is_measured_is_not_run(tmp_path: Path) -> None:
    context = context_of(interpreter(tmp_path), sweep={"PART": [0, 1]})
    (context.run_dir / ".session.json").write_text(json.dumps({"session": "s1"}))
    said = json.dumps({"session": "s1", "cause": "stop", "reason": "lunch"})
    path = str(context.run_dir.resolve() / ".stop.json")
    program = f"import time\nopen({path!r}, 'w').write({said!r})\ntime.sleep(300)\n"
    interpreter(tmp_path, program)
    record = run(context)
    assert (record["status"], record["cause"]) == ("not_run", "stop")
    assert "lunch" in record["reasons"][0]


def test_reuse_takes_the_record_of_another_run_only_where_all_is_the_same(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    first = context_of(python)
    freeze(first, "6.1")
    taken = run(first)
    path = first.run_dir / "baselines/coll.json"
    OUTPUT.replace(path)

    def second(kernel: str, **keys: Any) -> dict[str, Any]:
        context = other_run(python, reuse_from="r", **keys)
        freeze(context, kernel)
        return run_baseline(context, "coll", 1, OUTPUT)

    record = second("6.1", timeout_s=50)
    assert (record["status"], record["results"]) == ("ok", taken["results"])
    assert record["reused"]["run"] == "r"
    assert record["reused"]["started_ns"] == taken["started_ns"]
    assert record["spec_sha256"] != taken["spec_sha256"]
    refused = second("6.2")
    assert refused["status"] == "failed"
    assert "kernel of node n1 was 6.1, is 6.2" in refused["reasons"][0]
    assert "remove reuse_from" in refused["reasons"][0]
    assert refused["results"] == []
    Path("results/later/freeze/n1.json").unlink()
    bare = run_baseline(other_run(python, reuse_from="r"), "coll", 1, OUTPUT)
    assert "the facts of node n1 were not frozen" in bare["reasons"][0]
    assert "iterations was 3, is 4" in second("6.1", iterations=4)["reasons"][0]
    path.unlink()
    assert "has no such record" in second("6.1")["reasons"][0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accelerators": {"found": True, "tools": {}}}, "accelerators of node n1 was not told"),
        ({"accelerators": {"error": "OSError: x"}}, "driver of node n1 was not told"),
        ({"nics": {"interfaces": {}}}, "rdma of node n1 was not told"),
        ({"nics": {"error": "OSError: x"}}, "nics of node n1 was not told"),
        ({"engine_python": {}}, "libraries of node n1 was not told"),
    ],
)
def test_facts_that_neither_run_was_told_are_not_the_same(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    python = interpreter(tmp_path)
    first = context_of(python)
    freeze(first, "6.1", **changes)
    run(first)
    OUTPUT.replace(first.run_dir / "baselines/coll.json")
    second = other_run(python, reuse_from="r")
    freeze(second, "6.1", **changes)
    record = run_baseline(second, "coll", 1, OUTPUT)
    assert record["status"] == "failed"
    assert said in record["reasons"][0]


@pytest.mark.parametrize(
    "results",
    [None, [], "text", [{"status": "failed", "rows": [{}]}], [{"status": "ok", "rows": []}]],
)
def test_a_record_without_all_its_figures_is_not_taken(tmp_path: Path, results: Any) -> None:
    python = interpreter(tmp_path)
    first = context_of(python)
    freeze(first, "6.1")
    record = run(first) | {"results": results}
    for path in ("coll.json", "raw/coll/001/meta.json"):
        (first.run_dir / "baselines" / path).write_text(json.dumps(record))
    second = other_run(python, reuse_from="r")
    freeze(second, "6.1")
    (reason,) = run_baseline(second, "coll", 1, OUTPUT)["reasons"]
    assert "without figures for all that it measured" in reason


def test_a_record_that_is_not_what_was_measured_is_not_taken(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    first = context_of(python)
    freeze(first, "6.1")
    record = run(first)
    path = first.run_dir / "baselines/coll.json"
    second = other_run(python, reuse_from="r")
    freeze(second, "6.1")
    record["results"][0]["rows"][0]["busbw_bytes_per_s"] *= 2
    path.write_text(json.dumps(record))
    (reason,) = run_baseline(second, "coll", 1, OUTPUT)["reasons"]
    assert "is not what its newest try in results/r/baselines/raw/coll measured" in reason
    record["results"][0]["rows"][0]["busbw_bytes_per_s"] /= 2
    path.write_text(json.dumps(record))
    assert run_baseline(second, "coll", 1, OUTPUT)["status"] == "ok"
    (first.run_dir / "baselines/raw/coll/001/raw/01-n1.log").write_text("other")
    (reason,) = run_baseline(second, "coll", 1, OUTPUT)["reasons"]
    assert "is not what its newest try" in reason


def other_run(python: str, **keys: Any) -> Context:
    baseline = {
        "id": "coll", "kind": "collective", "python": python, "ranks_per_node": 2,
        "sizes": ["8K", "1M"], "operations": ["all_reduce"], "iterations": 3, **keys,
    }  # fmt: skip
    # As in `results/r`, whose port was any free one.
    server = {"engine": "llamacpp", "port": 18999, "master_port": PORTS[-1]}
    phases = [{"id": "phase1", "baselines": ["coll"]}]
    config = campaign(run="later", baselines=[baseline], phases=phases, server=server)
    context = load_context(config)
    context.run_dir.mkdir(parents=True, exist_ok=True)
    return context


def freeze(context: Context, kernel: str, **changes: Any) -> None:
    path = context.run_dir / "freeze/n1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    spec = context.plan.baselines["coll"]
    assert isinstance(spec, CollectiveBaseline)
    facts = {
        "kernel": {"release": kernel},
        "nics": {"interfaces": {}, "rdma": {}},
        "accelerators": {"found": False, "tools": {}},
        "engine_python": {spec.python: {"version": "3.8", "packages": {"torch": "9.9"}}},
        **changes,
    }
    path.write_text(json.dumps({"schema": 1, "facts": facts}))
