"""Baselines and captures: what is recorded, and when a baseline is measured again."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.measure import baseline
from servemap.measure.baseline import run_baseline
from servemap.measure.baselines import tcp
from servemap.measure.capture import run_capture
from servemap.measure.progress import baseline_line
from servemap.model.attempts import read_records, state, token
from servemap.model.errors import ConnectionLostError, LaunchError, NodeError
from servemap.nodes.base import ProcessId
from servemap.server.context import Context
from servemap.server.stop import request_stop
from tests.fakes import FakeNode, campaign, fake_context

OUTPUT = Path("net.json")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = FakeNode()

    def serve(argv: list[str], pid: ProcessId) -> None:
        path = Path(argv[argv.index("--ready") + 1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"port": 4321}')

    node.on_spawn["tcp-serve"] = serve
    node.on_run["tcp-probe"] = lambda argv: json.dumps({"asked": argv[2:]})
    return node


def run(context: Context, number: int = 1) -> dict[str, Any]:
    run_baseline(context, "net", number, OUTPUT)
    return dict(json.loads(OUTPUT.read_text()))


def history(context: Context) -> tuple[str, int]:
    records = read_records(context.run_dir / "baselines/raw/net")
    sha256 = context.plan.spec_sha256("baseline", "net")
    return state(records, sha256, 2), token(records, sha256, 2)


def test_one_node_is_measured_over_its_loopback(node: FakeNode) -> None:
    context = fake_context(node, campaign())
    record = run(context)
    assert (record["status"], record["token"]) == ("ok", 1)
    (result,) = record["results"]
    assert (result["from"], result["to"]) == ("n1", "n1")
    assert result["asked"] == [
        "--host", "127.0.0.1", "--port", "4321", "--pings", "10", "--seconds", "0.1",
    ]  # fmt: skip
    assert not node.living, "the listener is ended"
    assert history(context) == ("done", 1)


def two_nodes(node: FakeNode, address: str = "10.0.0.2") -> tuple[Context, FakeNode]:
    nodes = [{"id": "n1", "address": "10.0.0.1"},
             {"id": "n2", "role": "worker", "address": address}]  # fmt: skip
    context = fake_context(node, campaign(nodes=nodes))
    other = FakeNode("n2")
    other.on_spawn, other.on_run = node.on_spawn, dict(node.on_run)
    context.__dict__["nodes"]["n2"] = other
    return context, other


def ways(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(item["from"], item["to"], item["status"]) for item in record["results"]]


def test_every_ordered_pair_is_measured(node: FakeNode) -> None:
    context, _ = two_nodes(node)
    record = run(context)
    assert ways(record) == [("n1", "n2", "ok"), ("n2", "n1", "ok")]
    assert [item["address"] for item in record["results"]] == ["10.0.0.2", "10.0.0.1"]
    assert [item["asked"][1] for item in record["results"]] == ["10.0.0.2", "10.0.0.1"]


def test_a_pair_that_fails_is_named_and_costs_no_other(node: FakeNode) -> None:
    context, other = two_nodes(node)

    def refused(argv: list[str]) -> str:
        raise NodeError("tcp-probe exited with 1: no route", "n2", "see the firewall")

    other.on_run["tcp-probe"] = refused
    record = run(context)
    assert ways(record) == [("n1", "n2", "ok"), ("n2", "n1", "failed")]
    assert record["status"] == "failed"
    assert record["reasons"][0].startswith("n2 to n1: tcp-probe exited with 1: no route")
    assert record["results"][0]["asked"]
    assert not node.living and not other.living


def test_an_address_that_only_its_own_node_reaches(node: FakeNode) -> None:
    context, _ = two_nodes(node, address="127.0.0.1")
    record = run(context)
    assert ways(record) == [("n1", "n2", "failed"), ("n2", "n1", "ok")]
    assert "n2 has the address 127.0.0.1, which n1 cannot reach" in record["reasons"][0]


def test_a_node_that_is_away_uses_up_no_try_unless_something_was_measured(node: FakeNode) -> None:
    context, other = two_nodes(node)

    def away(argv: list[str]) -> str:
        raise ConnectionLostError("no route to host", "n2", "plug it in")

    other.on_run["tcp-probe"] = away
    assert (run(context)["status"], run(context, 2)["cause"]) == ("failed", None)
    node.on_run["tcp-probe"] = away
    record = run(context, 3)
    assert (record["status"], record["cause"]) == ("not_run", "unreachable")


@pytest.mark.parametrize("answer", ["", "no json", "["])
def test_an_answer_that_is_no_json_is_an_error_in_words(node: FakeNode, answer: str) -> None:
    node.on_run["tcp-probe"] = lambda argv: answer
    record = run(fake_context(node, campaign()))
    assert record["status"] == "failed"
    assert "something else than JSON" in record["reasons"][0]
    assert not node.living


def test_a_failure_is_recorded_and_tried_again_but_not_for_ever(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "READY_S", 0.05)
    node.on_spawn["tcp-serve"] = lambda argv, pid: None
    context = fake_context(node, campaign())
    record = run(context)
    assert record["status"] == "failed"
    assert "tcp-serve did not come up" in record["reasons"][0]
    assert not node.living
    assert history(context) == ("failed", 2)
    run(context, 2)
    assert history(context) == ("gave_up", 2)


def test_a_stop_is_not_run_and_is_done_the_next_time(node: FakeNode) -> None:
    context = fake_context(node, campaign())
    request_stop(context.run_dir, "s1", "stop", "lunch")
    record = run(context)
    assert (record["status"], record["cause"], record["reasons"]) == ("not_run", "stop", ["lunch"])
    assert history(context) == ("not_run", 2)
    assert node.spawned == []


def test_a_server_that_does_not_leave_the_cards(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(*args: object) -> bool:
        raise LaunchError("the server does not end", "n1", "end it")

    monkeypatch.setattr(baseline, "stop_server", stuck)
    record = run(fake_context(node, campaign()))
    assert record["status"] == "failed"
    assert record["results"] == []


def test_a_capture_says_why_there_is_none(node: FakeNode) -> None:
    phases = [{"id": "phase1", "captures": [{"case": "c", "num_steps": 3}]}]
    context = fake_context(node, campaign(phases=phases))
    run_capture(context, "baseline", "c", 1, OUTPUT)
    record = json.loads(OUTPUT.read_text())
    assert (record["status"], record["kind"]) == ("not_available", "torch")
    assert len(record["reasons"][0]) > 20
    assert record["spec_sha256"] == context.plan.spec_sha256("capture", "baseline", "c")


def test_the_load_of_every_node_before_is_recorded(node: FakeNode) -> None:
    context, other = two_nodes(node)
    other.on_run["/proc/loadavg"] = lambda argv: "garbage"
    assert run(context)["load_before"] == {"n1": "0.50 0.25 0.10", "n2": None}


def test_a_baseline_is_said_in_one_line() -> None:
    good = {"name": "net", "status": "ok", "results": [{}, {}], "reasons": []}
    assert baseline_line(good) == "baseline net: ok, 2 pairs of nodes"
    error = str(NodeError("no route", "n1 to n2", "see to the firewall"))
    bad = {**good, "status": "failed", "results": [{}], "reasons": [error, "x"]}
    assert baseline_line(bad) == (
        "baseline net: failed, 1 pair of nodes: no route (n1 to n2); to do: see to the firewall "
        "(and 1 more)"
    )
