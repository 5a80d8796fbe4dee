"""A server on two nodes: started in order, looked at whole, and ended on both."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Effective
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.base import ProcessId
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.gates.checks import Check, GateResult
from servemap.server.launch import admit, boots, ensure, process, start
from servemap.server.launch import stage as launch
from servemap.server.launch.ending import finish, stop_server
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.ranks import REPLACED, joined, rank_down, standing, why_down
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, fake_context, two_nodes


class Lab:
    """Two made-up nodes; `order` is the order in which programs were started on them."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.head, self.worker = Tracked("n1", self.order), Tracked("n2", self.order)

    def context(self, session: str = "s1", **server: Any) -> Context:
        config = two_nodes(**server)
        config["policy"] |= {"on_unhealthy": "relaunch"}
        return fake_context(self.head, config, session, others=[self.worker])


class Tracked(FakeNode):
    """A made-up node that may be cut off."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__(name)
        self.order = order
        self.cut = False
        self.refuses = False
        self.on_alive: list[Callable[[], object]] = []

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        self._reach()
        self.order.append(self.name)
        return super().spawn(argv, log=log, env=env, cwd=cwd)

    def read_text(self, remote: str) -> str | None:
        self._reach()
        return super().read_text(remote)

    def alive(self, process: ProcessId) -> bool:
        self._reach()
        while self.on_alive:
            self.on_alive.pop()()
        return super().alive(process)

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        self._reach()
        return super().stop(process, grace_s)

    def _reach(self) -> None:
        if self.refuses:
            raise NodeError(f"the login on {self.name} was refused", self.name, "see the key")
        if self.cut:
            raise ConnectionLostError(f"node {self.name} is away", self.name, "wait")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module, probe in ((admit, "check_ready"), (ensure, "check_completion")):
        monkeypatch.setattr(module, probe, lambda *args: Check("completion", True, "token"))
        monkeypatch.setattr(
            module, "run_gates", lambda *args: GateResult([], Effective(engine_version="fake 1"))
        )
    monkeypatch.setattr(start, "require_clean", lambda *args: None)
    monkeypatch.setattr(admit, "only_ours", lambda *args: [])
    monkeypatch.setattr(
        admit, "check_process", lambda started: Check("process", True, f"pid {started.pid}")
    )
    return Lab()


def spec_of(node: FakeNode) -> dict[str, Any]:
    argv = next(argv for name, argv, _ in node.spawned if name == "supervise")
    data: dict[str, Any] = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    return data


def test_each_rank_gets_its_own_command_and_environment(lab: Lab) -> None:
    context = lab.context()
    served = ensure_server(context, "baseline")
    assert lab.order == ["n1", "n2"]
    for rank, node, says in ((0, lab.head, "hello"), (1, lab.worker, "good day")):
        spec = spec_of(node)
        words = spec["argv"]
        at = words.index("--rank")
        assert words[at : at + 6] == [
            "--rank", str(rank), "--ranks", "2", "--master", "192.0.2.1:29500"
        ]  # fmt: skip
        assert spec["env"]["NODE_SAYS"] == says
        assert spec["boot_id"] == served.boot_id
    assert served.pids == {"n1": [lab.head.server.pid], "n2": [lab.worker.server.pid]}
    assert [(rank["node"], rank["rank"]) for rank in served.ranks] == [("n1", 0), ("n2", 1)]
    assert [check["name"] for check in served.checks] == [
        "nodes_agree", "ready", "settings", "process n2",
    ]  # fmt: skip
    folder = boots.boot_dir(context.run_dir, "baseline", str(served.boot_id))
    assert {path.name for path in folder.glob("*.log")} == {"n1.log", "n2.log"}


def test_workers_may_come_first(lab: Lab) -> None:
    ensure_server(lab.context(start_order="workers_first"), "baseline")
    assert lab.order == ["n2", "n1"]


def test_a_whole_server_is_reused_and_a_torn_one_is_not(lab: Lab) -> None:
    context = lab.context()
    first = ensure_server(context, "baseline")
    assert ensure_server(context, "baseline").reused
    boot_id = str(first.boot_id)
    assert [rank_down(context, node, boot_id) for node in ("n1", "n2")] == [None, None]
    assert rank_down(context, "n1", "another") == REPLACED
    lab.worker.server_dies(code=1)
    assert rank_down(context, "n1", boot_id) is None
    said = rank_down(context, "n2", boot_id)
    assert said == "the server exited with code 1 (node n2)"
    old = lab.head.server
    second = ensure_server(context, "baseline")
    assert not second.reused
    assert old not in lab.head.living, "the rank that was left is ended too"
    lost = next(boot for boot in boots.read_boots(context.run_dir, "baseline"))
    assert lost.status == "died"
    assert lost.reason == f"{said}; last lines of its log: engine says hello"


def test_a_rank_that_does_not_start_ends_the_others(lab: Lab) -> None:
    context = lab.context()
    lab.worker.on_spawn["supervise"] = lambda argv, pid: lab.worker.living.discard(pid)
    with pytest.raises(NotRunError, match="supervisor did not start it") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "launch"
    assert not lab.head.living
    assert standing(context, ["n1", "n2"]) == {}
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "failed"


def test_a_rank_that_ends_while_it_is_looked_for_says_why(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = lab.context()
    monkeypatch.setattr(admit, "check_ready", lambda *args: Check("health", False, "HTTP 503"))
    # The state of a server that ended at once comes between two looks at its supervisor.
    lab.worker.on_spawn["supervise"] = lambda argv, pid: lab.worker.on_alive.append(
        lambda: (lab.worker.supervise(argv, pid), lab.worker.server_dies(code=127))
    )
    launch.launch_variant(context, "baseline", 1, Path("launch.json"))
    (reason,) = json.loads(Path("launch.json").read_text())["reasons"]
    assert "the server exited with code 127 (node n2)" in reason


def test_a_rank_that_dies_while_starting_cuts_the_wait_short(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = lab.context()
    monkeypatch.setattr(admit, "check_ready", lambda *args: Check("health", False, "HTTP 503"))
    begin = lab.worker.on_spawn["supervise"]

    def dies(argv: list[str], pid: ProcessId) -> None:
        begin(argv, pid)
        lab.worker.server_dies(code=3)

    lab.worker.on_spawn["supervise"] = dies
    output = Path("launch.json")
    launch.launch_variant(context, "baseline", 1, output)
    record = json.loads(output.read_text())
    assert record["status"] == "failed"
    assert "the server exited with code 3 (node n2)" in record["reasons"][0]
    assert not lab.head.living
    assert record["log_tail"] == ["n1: engine says hello", "n2: engine says hello"]


def test_a_needed_node_that_is_away_is_said(lab: Lab) -> None:
    context = lab.context()
    lab.worker.cut = True
    with pytest.raises(NotRunError, match="n2 is away") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "unreachable"
    assert lab.order == []


def test_a_node_that_is_not_needed_may_be_away(lab: Lab) -> None:
    context = lab.context(nodes=["n1"])
    lab.worker.cut = True
    assert ensure_server(context, "baseline").pids == {"n1": [lab.head.server.pid]}


def test_what_a_lost_node_keeps_running_is_noted_and_ended_when_it_is_back(lab: Lab) -> None:
    context = lab.context()
    served = ensure_server(context, "baseline")
    lab.worker.cut = True
    finish(context, standing(context, ()) | {"n2": running(lab)}, "died", "node n2 is away")
    assert not lab.head.living, "the rank that can be reached is ended"
    left = [event for event in read_events(context.run_dir) if event["event"] == "rank_left"]
    assert [(event["node"], event["boot_id"]) for event in left] == [("n2", served.boot_id)]
    lab.worker.cut = False
    stale = lab.worker.server
    again = ensure_server(context, "baseline")
    assert not again.reused
    assert stale not in lab.worker.living


@pytest.mark.parametrize("fault", ["cut", "refuses"])
def test_what_a_node_that_cannot_be_asked_at_the_end_keeps_running_is_noted(
    lab: Lab, fault: str
) -> None:
    context = lab.context()
    served = ensure_server(context, "baseline")
    setattr(lab.worker, fault, True)
    assert stop_server(context, "the end")
    assert not lab.head.living
    left = [event for event in read_events(context.run_dir) if event["event"] == "rank_left"]
    assert [(event["node"], event["boot_id"]) for event in left] == [("n2", served.boot_id)]


def test_a_node_that_refuses_in_the_midst_of_a_stop_holds_no_other_up(lab: Lab) -> None:
    context = lab.context()
    served = ensure_server(context, "baseline")
    ranks = standing(context, ())
    lab.head.refuses = True
    finish(context, ranks, "stopped", "the end")
    assert not lab.worker.living
    left = [event for event in read_events(context.run_dir) if event["event"] == "rank_left"]
    assert [(event["node"], event["boot_id"]) for event in left] == [("n1", served.boot_id)]
    assert "the login on n1 was refused" in left[0]["error"]


@pytest.mark.parametrize("text", ["{", '{"boot_id": ["x"]}', "{}"])
def test_a_server_whose_record_on_its_node_is_gone_is_ended_all_the_same(
    lab: Lab, text: str
) -> None:
    context = lab.context()
    served = ensure_server(context, "baseline")
    path = Path(context.workdir("n2")) / "server/current.json"
    path.write_text(text)
    swept: list[list[str]] = []
    lab.worker.on_run["sweep"] = lambda argv: swept.append(argv) or "{}"
    assert stop_server(context, "the end")
    assert [argv[1:4] for argv in swept] == [["sweep", "--boot-id", served.boot_id]]
    assert path.read_text() == "{}\n"
    named = [e["file"] for e in read_events(context.run_dir) if e["event"] == "record_damaged"]
    assert named == ([] if text == "{}" else [str(path)])
    assert [boot.status for boot in boots.read_boots(context.run_dir, "baseline")] == ["stopped"]
    assert not stop_server(context, "again")
    assert len(swept) == 1


def running(lab: Lab) -> process.Running:
    """What the worker would say if it could be reached."""
    lab.worker.cut = False
    context = lab.context()
    found = process.read_running(lab.worker, context.workdir("n2"))
    lab.worker.cut = True
    assert found is not None
    return found


def test_the_package_of_every_rank_is_looked_at(lab: Lab) -> None:
    package = {"package": {"name": "llamaserve", "root": "/e"}}
    lab.worker.server_log = 'llamaserve: starting {"module": "/site/llamaserve/__main__.py"}\n'
    with pytest.raises(NotRunError, match=r"module n2: imported /site/llamaserve/__main__\.py"):
        ensure_server(lab.context(**package), "baseline")
    lab.worker.server_log = "a rank that does not say it\n"
    served = ensure_server(lab.context("s2", **package), "baseline")
    (module,) = [check for check in served.checks if check["name"] == "module n2"]
    assert (module["ok"], bool(module["remedy"])) == (None, True)


def test_another_variant_on_fewer_nodes_leaves_no_rank(lab: Lab) -> None:
    context = lab.context()
    ensure_server(context, "baseline")
    rank = lab.worker.server
    ensure_server(context, "few")
    assert rank not in lab.worker.living
    assert stop_server(context, "done")
    assert not lab.head.living | lab.worker.living
    assert not stop_server(context, "again")


def test_the_rank_that_was_killed_is_said_before_those_that_ended_because_of_it(lab: Lab) -> None:
    context = lab.context()
    ensure_server(context, "baseline")
    lab.head.server_dies(code=1)
    lab.worker.server_dies(signal=9)
    assert why_down(context, standing(context, ())) == (
        "the server was ended by signal 9 (node n2); the server exited with code 1 (node n1)"
    )
    assert joined([None, None]) is None
    assert joined([REPLACED, REPLACED]) == REPLACED


def test_a_node_that_was_restarted_is_said_before_the_ranks_that_ended_because_of_it(
    lab: Lab,
) -> None:
    context = lab.context()
    ensure_server(context, "baseline")
    lab.head.server_dies(code=1)
    lab.worker.living.clear()
    lab.worker.boot = "the next"
    assert why_down(context, standing(context, ())) == (
        "the machine was restarted, and the server ended with it (node n2); "
        "the server exited with code 1 (node n1)"
    )
