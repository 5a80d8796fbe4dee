"""What stands on disk for baselines, and what measuring them should take."""

from pathlib import Path
from typing import Any

import pytest

from servemap.measure.baseline_status import PlannedBaseline, planned_baselines
from servemap.model import results
from servemap.model.attempts import keep_record
from servemap.model.canon import write_json_atomic
from servemap.server.context import Context
from tests.fakes import FakeNode, campaign, fake_context

NODES = [{"id": "n1", "address": "10.0.0.1"},
         {"id": "n2", "role": "worker", "address": "10.0.0.2"}]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def context_of(*baselines: dict[str, Any], nodes: int = 2) -> Context:
    phase = {"id": "phase0", "baselines": [one["id"] for one in baselines], "cases": ["c"]}
    given = campaign(nodes=NODES[:nodes], baselines=list(baselines), phases=[phase])
    return fake_context(FakeNode(), given)


def planned(*baselines: dict[str, Any], nodes: int = 2) -> PlannedBaseline:
    (one,) = planned_baselines(context_of(*baselines, nodes=nodes))
    return one


@pytest.mark.parametrize(
    ("keys", "nodes", "expected_s"),
    [
        ({"kind": "tcp", "seconds": 2}, 2, 10.0),  # two ordered pairs, each 2 x 2 s and 1 s
        ({"kind": "tcp", "seconds": 2}, 1, 5.0),  # over loopback
        ({"kind": "copies"}, 2, 60.0),
        ({"kind": "copies", "timeout_s": 10}, 2, 20.0),
        ({"kind": "collective", "ranks_per_node": 2}, 2, 30.0),
        ({"kind": "collective", "ranks_per_node": 2, "nodes": "each"}, 2, 60.0),
        ({"kind": "collective", "ranks_per_node": 2, "sweep": {"A_B": [0, 1, 2]}}, 2, 90.0),
        ({"kind": "collective", "ranks_per_node": 2, "reuse_from": "before"}, 2, 1.0),
    ],
)
def test_what_a_baseline_should_take_before_it_was_measured(
    keys: dict[str, Any], nodes: int, expected_s: float
) -> None:
    one = planned({"id": "b", **keys}, nodes=nodes)
    assert (one.state, one.tries, one.measured) == ("missing", 0, False)
    assert one.expected_s == expected_s
    assert one.kind == keys["kind"]


def test_what_it_took_is_what_it_should_take_while_it_is_the_same() -> None:
    tcp = {"id": "b", "kind": "tcp"}
    context = context_of(tcp)

    def stored(status: str) -> None:
        record = {
            "schema": 1,
            "status": status,
            "token": 1,
            "spec_sha256": context.plan.spec_sha256("baseline", "b"),
            "started_ns": 1_000_000_000,
            "ended_ns": 8_500_000_000,
        }
        keep_record(results.baseline_history(context.run, "b"), record)
        write_json_atomic(context.run_dir / "baselines/b.json", record)

    stored("failed")
    assert planned(tcp) == PlannedBaseline("b", "tcp", "failed", 1, 6.0, False)
    stored("ok")
    assert planned(tcp) == PlannedBaseline("b", "tcp", "done", 2, 7.5, True)
    assert not planned(tcp).runs
    other = planned({**tcp, "seconds": 0.5})
    assert (other.state, other.expected_s, other.measured) == ("changed", 4.0, False)
    (context.run_dir / "baselines/b.json").unlink()
    assert planned(tcp).state == "missing", "Snakemake measures it again, so we say so"
