"""The commands of torchrun for the nodes of a part."""

import json
from typing import Any

import pytest

from servemap.measure.baselines.tool import Ended, Part, Place
from servemap.measure.baselines.torch_tool import read_torch, torch_commands
from servemap.model.baselines import CollectiveBaseline
from servemap.parsers.communication.torch_ranks import MARK


def part(*ranks: int) -> Part:
    spec = CollectiveBaseline(
        id="coll", kind="collective", sizes=["8K", "1G"], operations=["all_to_all"], timeout_s=30
    )
    places = tuple(
        Place(f"n{n}", f"10.0.0.{n}", count, "/opt/python", f"/srv/n{n}")
        for n, count in enumerate(ranks)
    )
    return Part(spec, places, {}, 29500)


def test_each_node_joins_at_the_first_with_its_own_number() -> None:
    first, second = torch_commands(part(8, 4))
    assert (first.node, second.node) == ("n0", "n1")
    assert first.argv[:3] == ["/opt/python", "-m", "torch.distributed.run"]
    for command, rank, count in ((first, 0, 8), (second, 1, 4)):
        assert f"--node-rank={rank}" in command.argv
        assert f"--nproc-per-node={count}" in command.argv
        assert {"--nnodes=2", "--master-addr=10.0.0.0", "--master-port=29500"} <= {*command.argv}
        assert "--max-restarts=0" in command.argv
        (path,) = command.files
        assert path == f"/srv/n{rank}/torch_ranks.py"
        assert command.argv[-2] == path
    plan = json.loads(second.argv[-1])
    assert plan["sizes"] == [8192, 1 << 30]
    assert plan["address"] == "10.0.0.1"
    assert plan["timeout_s"] == 30


def test_nccl_says_which_algorithm_and_network_it_took() -> None:
    (command,) = torch_commands(part(2))
    assert command.env["NCCL_DEBUG"] == "INFO"
    assert {"NET", "TUNING", "GRAPH"} <= set(command.env["NCCL_DEBUG_SUBSYS"].split(","))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"wrong": 7}, "all_to_all of 8192 bytes: 14 values are wrong"),
        ({"wrong": None}, "all_to_all of 8192 bytes: not all values were checked"),
        ({"size_bytes": 8000}, "not measured: all_to_all of 8192 bytes"),
    ],
)
def test_only_what_was_asked_for_and_checked_is_a_measurement(
    changes: dict[str, Any], said: str | None
) -> None:
    texts = []
    for rank in range(2):
        texts.append({"rank": rank, "world": 2, "backend": "gloo"})
        for size in (8192, 1 << 30):
            keys = {"size_bytes": size, "wrong": 0, **(changes if size == 8192 else {})}
            texts.append({"rank": rank, "operation": "all_to_all", "times_ns": [10], **keys})
        texts.append({"rank": rank, "done": True})
    log = "".join(f"{MARK}{json.dumps(one)}\n" for one in texts)
    found = read_torch(part(2), {"n0": Ended(0, None, log)})
    assert found.problems == ([] if said is None else [said])
    assert bool(found.rows) is (said is None)
