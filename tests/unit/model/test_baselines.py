"""Kinds of baselines: their keys, what identifies their jobs, what is refused."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servemap.cli_show import baseline_line
from servemap.measure.setup import load_context
from servemap.model.baselines import CollectiveBaseline, CopiesBaseline, TcpBaseline, size_bytes
from servemap.model.errors import ConfigError
from tests.fakes import campaign

TWO = [{"id": "n1", "address": "10.0.0.1"},
       {"id": "n2", "role": "worker", "address": "10.0.0.2"}]  # fmt: skip


def collective(**keys: Any) -> dict[str, Any]:
    return {"id": "coll", "kind": "collective", **keys}


def spec_of(baseline: dict[str, Any], **keys: Any) -> dict[str, Any]:
    phases = [{"id": "phase1", "baselines": [baseline["id"]]}]
    context = load_context(campaign(baselines=[baseline], phases=phases, **keys))
    return context.plan.spec_data("baseline", baseline["id"])


def test_the_default_sweep_is_what_decoding_uses() -> None:
    sizes = [size_bytes(size) for size in CollectiveBaseline(**collective()).sizes]
    assert (sizes[0], sizes[-1]) == (8 << 10, 64 << 20)
    assert all(b == 2 * a for a, b in pairwise(sizes))


@given(st.integers(1, 999), st.sampled_from(["", "K", "M", "G"]))
def test_a_size_is_in_powers_of_1024(number: int, unit: str) -> None:
    assert size_bytes(f"{number}{unit}") == number * 1024 ** " KMG".index(unit or " ")


@pytest.mark.parametrize("size", ["", "8k", "8 K", "0", "-1", "1.5M", "64MB", "17G", True, 1023])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(ValidationError):
        CollectiveBaseline(**collective(sizes=[size]))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"tool": "torch", "launch": "mpirun"}, "torch is not started by mpirun"),
        ({"tool": "nccl-tests", "launch": "torchrun"}, "nccl-tests is not started by torchrun"),
        ({"tool": "nccl-tests", "launch": "process"}, "nodes: each"),
        ({"sweep": {"NCCL_CROSS_NIC": []}}, "at least one value"),
        ({"sizes": ["8K", "8K"]}, "twice"),
        ({"pings": 10}, "Extra inputs"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CollectiveBaseline(**collective(**keys))


def test_the_launch_follows_the_tool() -> None:
    assert CollectiveBaseline(**collective()).launcher == "torchrun"
    assert CollectiveBaseline(**collective(tool="rccl-tests")).launcher == "mpirun"


def test_a_tcp_baseline_keeps_the_spec_that_it_had() -> None:
    found = spec_of({"id": "net", "kind": "tcp", "pings": 10, "seconds": 0.1})
    assert found == {
        "protocol": 1,
        "baseline": {"id": "net", "kind": "tcp", "pings": 10, "seconds": 0.1},
        "nodes": [["n1", "127.0.0.1"]],
    }
    assert TcpBaseline(id="net", kind="tcp").reuse_from is None


def test_a_collective_is_of_its_interpreter_environment_and_bytes() -> None:
    server = {"engine": "llamacpp", "port": 18999, "env": {"NCCL_ALGO": "Ring"}}
    found = spec_of(collective(ranks_per_node=2, sizes=["8K", 16384]), server=server)
    assert found["baseline"]["sizes"] == [8192, 16384]
    assert found["ranks"] == {"n1": 2}
    assert found["server"]["env"] == {"NCCL_ALGO": "Ring"}
    assert found["node_env"] == {"n1": {"NODE_SAYS": "hello"}}


def test_ranks_are_the_accelerators_unless_said_otherwise() -> None:
    nodes = [{**node, "accelerators": 8} for node in TWO]
    assert spec_of(collective(), nodes=nodes)["ranks"] == {"n1": 8, "n2": 8}
    assert spec_of(collective(ranks_per_node=1), nodes=nodes)["ranks"] == {"n1": 1, "n2": 1}


def test_a_plan_says_what_a_baseline_measures() -> None:
    given = collective(sweep={"NCCL_CROSS_NIC": [0, 1, 2]}, operations=["all_reduce"], nodes="each")
    assert baseline_line(CollectiveBaseline(**given), 2) == (
        "all_reduce of 14 sizes (8K to 64M) on each node by torch, 6 parts, NCCL_CROSS_NIC"
    )
    other = CollectiveBaseline(**collective(reuse_from="before", sizes=["16M"]))
    assert baseline_line(other, 2).endswith("all nodes by torch, 1 part; taken from run before")
    tcp = TcpBaseline(id="net", kind="tcp", pings=100, seconds=2)
    assert baseline_line(tcp, 3) == (
        "round trips (up to 100) and bandwidth of TCP between every two nodes, both ways, 2 s each "
        "at most, 6 parts"
    )
    assert baseline_line(tcp, 1).endswith("over loopback, 2 s each at most, 1 part")
    copies = CopiesBaseline(id="cards", kind="copies")
    assert baseline_line(copies, 2) == "copies between all pairs of cards of each node, 2 parts"


@pytest.mark.parametrize(
    ("baseline", "nodes", "said"),
    [
        (collective(), TWO[:1], "one rank has nobody to communicate with"),
        (collective(nodes="each"), TWO, "one rank on node n1 has nobody"),
        (collective(reuse_from="r"), TWO, "from its own run"),
        (collective(ranks_per_node=64, sizes=["1K"], nodes="all"), TWO * 1, None),
        (collective(ranks_per_node=64, sizes=["1K"]), "many", "no value for each of 320 ranks"),
    ],
)
def test_baselines_that_cannot_be_measured_are_refused(
    baseline: dict[str, Any], nodes: Any, said: str | None
) -> None:
    if nodes == "many":
        nodes = [TWO[0]] + [
            {"id": f"n{n}", "role": "worker", "address": f"10.0.0.{n}"} for n in range(2, 6)
        ]
    if said is None:
        assert spec_of(baseline, nodes=nodes)["ranks"] == {"n1": 64, "n2": 64}
        return
    with pytest.raises(ConfigError, match=said):
        spec_of(baseline, nodes=nodes)
