"""The gates over baselines: their log, and what they measured, against what is required."""

import json
from typing import Any

import pytest

from servemap.measure.baselines.node_logs import logs_by_node
from servemap.model.server_spec import ServerSpec
from servemap.server.gates.baselines import baseline_checks
from servemap.server.gates.checks import Check
from servemap.server.gates.transport_paths import connected, restored
from tests.corpus import read_sample

MIB = 1 << 20


def log(host: str, ranks: tuple[int, int], net: str, intra: str = "P2P/CUMEM") -> str:
    """A made-up log of two ranks on one of two nodes, in NCCL's form."""
    lines = []
    for gpu, rank in enumerate(ranks):
        head = f"{host}:{100 + gpu}:{200 + gpu} [{gpu}] NCCL INFO "
        lines += [
            f"{head}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.77.0.1<0>",
            f"{head}comm 0x5{rank} rank {rank} nranks 4 cudaDev {gpu} busId {gpu + 1}7000 "
            "commId 0xabc - Init COMPLETE",
            f"{head}Channel 00/0 : {rank}[{gpu}] -> {ranks[1 - gpu]}[{1 - gpu}] via {intra}",
            f"{head}Channel 01/0 : {rank}[{gpu}] -> {(rank + 2) % 4}[{gpu}] [send] via "
            f"{net.format(gpu)}",
        ]
    return "".join(f"{line}\n" for line in lines)


def part(net: str = "NET/IB/{}/GDRDMA", busbw: float = 48e9, **keys: Any) -> dict[str, Any]:
    seen = connected({"n1": log("a", (0, 1), net), "n2": log("b", (2, 3), net)})
    return {
        "nodes": ["n1", "n2"],
        "settings": {},
        "status": "ok",
        "backend": "nccl",
        "ranks": [{"rank": rank} for rank in range(4)],
        "rows": [
            {"operation": "all_reduce", "size_bytes": 8192, "busbw_bytes_per_s": 1e9},
            {"operation": "all_reduce", "size_bytes": 64 * MIB, "busbw_bytes_per_s": busbw},
            {"operation": "all_gather", "size_bytes": 64 * MIB, "busbw_bytes_per_s": 1e9},
        ],
        "commands": [{"node": "n1", "argv": [], "env": {}}],
        "transport": seen.whole_record(),
        **keys,
    }


def record(*parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    base = {"kind": "collective", "status": "ok", "reasons": [], "simulated": False}
    return {**base, "results": list(parts), "spec": {"server": {"container": None}}, **keys}


FLOOR = {"operation": "all_reduce", "size": "64M", "floor_gb_s": 40}
WANTED = {"inter": "NET/IB", "gdr": True, "hcas": ["mlx5_0", "mlx5_3"]}


def judged(
    found: dict[str, Any] | None, paths: dict[str, Any] | None = None, /, **keys: Any
) -> Check:
    transport = {**(paths or {}), "baselines": [{"id": "ar", **keys.pop("required", {})}]}
    server = ServerSpec.model_validate({"engine": "vllm", "transport": transport, **keys})
    (check,) = baseline_checks(server, {"ar": found and json.loads(json.dumps(found))})
    assert check.name == "baseline ar"
    assert check.ok is not False or check.remedy
    return check


def test_the_required_paths_and_the_floor_are_borne_out() -> None:
    check = judged(record(part()), WANTED, required=FLOOR)
    assert check.ok is True
    assert check.evidence == (
        "n1, n2: between nodes NET/IB over mlx5_0, mlx5_3 with GDRDMA (4 connections, n1, n2); "
        "within nodes P2P/CUMEM (4 connections, n1, n2); busbw of all_reduce at 64M: 48 GB/s "
        "(n1, n2), required: 40 GB/s or more"
    )


def test_a_fall_back_to_sockets_fails_and_says_which_variable() -> None:
    found = part("NET/Socket/{}")
    found["commands"][0]["env"] = {"NCCL_IB_DISABLE": "1"}
    check = judged(record(found), WANTED)
    assert check.ok is False
    assert "n1: 2 connections between nodes are NET/Socket, required: NET/IB" in check.evidence
    assert "NCCL_IB_DISABLE=1 forbids RDMA" in check.remedy


def test_below_the_floor_it_fails_and_says_where_to_look() -> None:
    check = judged(record(part(busbw=12.5e9)), WANTED, required=FLOOR)
    assert check.ok is False
    assert check.evidence == (
        "busbw of all_reduce at 64M: 12.5 GB/s (n1, n2), required: 40 GB/s or more"
    )
    assert "ibstat" in check.remedy and "NCCL_CROSS_NIC" in check.remedy
    one = part(busbw=12.5e9, nodes=["n1"], ranks=[{}, {}])
    one["transport"]["environment"] = {"NCCL_TOPO_FILE": ["/etc/topo.xml"]}
    said = judged(record(one), None, required=FLOOR).remedy
    assert said.startswith("NCCL_TOPO_FILE=/etc/topo.xml tells NCCL of another machine")


def test_the_slowest_part_counts_unless_the_server_sets_the_variable() -> None:
    parts = [part(busbw=rate, settings={"NCCL_CROSS_NIC": str(number)})
             for number, rate in enumerate((48e9, 12e9, 47e9))]  # fmt: skip
    assert "12 GB/s (n1, n2 NCCL_CROSS_NIC=1)" in judged(record(*parts), required=FLOOR).evidence
    set_to = {"env": {"NCCL_CROSS_NIC": "2"}, "required": FLOOR}
    assert judged(record(*parts), **set_to).ok is True
    set_to["env"] = {"NCCL_CROSS_NIC": "7"}
    check = judged(record(*parts), **set_to)
    assert check.ok is False
    assert check.evidence == "it was not measured with NCCL_CROSS_NIC=7, which server.env sets"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "it was not measured"),
        (record(status="failed", reasons=["n2: no torch"]), "it is failed: n2: no torch"),
        (record(status="not_run"), "it is not_run: no reason is recorded"),
        (record(part(rows=[])), "busbw of all_reduce at 64M: nothing was measured on n1, n2"),
        (
            record(part(), part(rows=[])),
            "busbw of all_reduce at 64M: nothing was measured on n1, n2",
        ),
        (record(), "not all that it measures has results"),
        (record(results=None), "not all that it measures has results"),
        (record(part(), part(status="failed")), "not all that it measures has results"),
    ],
)
def test_a_baseline_that_says_nothing_fails(found: dict[str, Any] | None, said: str) -> None:
    check = judged(found, required=FLOOR)
    assert (check.ok, check.evidence) == (False, said)


def rows(*measured: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"operation": "all_reduce", "size_bytes": size, "busbw_bytes_per_s": rate}
            for size, rate in measured]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_rows_of_one_size_the_slower_counts(order: int) -> None:
    found = rows((64 * MIB, 10e9), (64 * MIB, 50e9))[::order]
    check = judged(record(part(rows=found)), required=FLOOR)
    assert check.ok is False and "10 GB/s" in check.evidence


def test_a_row_is_of_a_size_only_where_rounding_makes_it_so() -> None:
    far = judged(record(part(rows=rows((32 * MIB + 8, 50e9)))), required=FLOOR)
    assert far.ok is False and "nothing was measured" in far.evidence
    # Three ranks: nccl-tests rounds down to whole parts of 16 bytes.
    rounded = part(rows=rows((64 * MIB // 48 * 48, 50e9)), world=3)
    assert judged(record(rounded), required=FLOOR).ok is True


def test_without_a_log_of_nccl_the_transport_is_not_told_and_the_floor_counts() -> None:
    gloo = part(backend="gloo")
    del gloo["transport"]
    check = judged(record(gloo), WANTED, required=FLOOR)
    assert check.ok is True
    assert check.evidence.startswith("n1, n2: the transport is not told (gloo); busbw")
    assert judged(record(gloo), WANTED).ok is None
    assert judged(record(gloo, simulated=True), WANTED).evidence.startswith("simulated: n1, n2")


@pytest.mark.parametrize(
    "damage",
    [
        {"transport": None},
        {"transport": {"silent": [], "paths": [{"node": "n1"}]}},
        {"transport": {"silent": 5}},
        {"transport": {"paths": {}, "ranks": 1}},
        {"transport": None, "backend": None},
        {"transport": None, "backend": "rccl", "ranks": None},
    ],
)
def test_a_record_of_nccl_without_its_log_shows_nothing(damage: dict[str, Any]) -> None:
    check = judged(record({**part(), **damage}), WANTED, required=FLOOR)
    assert check.ok is False
    assert check.evidence == (
        "n1, n2: the record has no log of NCCL that can be read: "
        + "; ".join(f"not shown: the log of {node} has no line of NCCL" for node in ("n1", "n2"))
    )
    assert "NCCL_DEBUG=INFO" in check.remedy
    assert judged(record({**part(), **damage}), required=FLOOR).ok is True
    # Nothing is between the nodes of one node.
    one = record({**part(), **damage, "nodes": ["n1"]})
    assert judged(one, {"inter": "NET/IB"}, required=FLOOR).ok is True


def stream(*logs: str) -> dict[str, Any]:
    """The record of a baseline whose ranks on two nodes wrote one stream."""
    nodes = ["n1", "n1", "n2", "n2"]
    told = logs_by_node("".join(logs), nodes)
    seen = connected({**dict.fromkeys(nodes, ""), **told.logs}, told.unplaced)
    return record(part(transport=seen.whole_record()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), "n2: 1 connections between nodes are NET/Socket"),
        (("rank 3 nranks 4", "r"), "n2: 1 connections between nodes are NET/Socket"),
        (("rank 3 nranks 4", "rank 1 nranks 2"), "rank 3 of the 4 joined communicator 0xabc"),
        (("rank 3 nranks 4", "rank 7 nranks 4"), "n2: 1 connections between nodes are NET/Socket"),
        (("NET/Socket/1", "NET/Soc\nket/1"), "1 lines of connections in the log of n2 are broken"),
        (("b:101", "b:100"), "between nodes are NET/Socket"),
        (("b:101:201 [1]", "a:101:201 [1]"), "4 lines of connections are of no known node"),
    ],
)
def test_no_rank_of_a_stream_is_left_out_in_silence(change: tuple[str, str], said: str) -> None:
    socket = log("b", (2, 3), "NET/Socket/{}").splitlines(keepends=True)
    rank_3 = "".join(line for line in socket if " [1] " in line)
    whole = log("b", (2, 3), "NET/IB/{}")
    rank_2 = "".join(line for line in whole.splitlines(keepends=True) if " [0] " in line)
    found = stream(log("a", (0, 1), "NET/IB/{}"), rank_2, rank_3.replace(*change))
    check = judged(found, {"inter": "NET/IB"})
    assert check.ok is False and said in check.evidence
    assert judged(stream(log("a", (0, 1), "NET/IB/{}"), whole), {"inter": "NET/IB"}).ok is True


def test_the_slowest_pair_of_cards_or_nodes_counts_where_there_is_no_operation() -> None:
    pairs = [{"row": "0", "column": "1", "bandwidth_bytes_per_s": 270e9},
             {"row": "1", "column": "0", "bandwidth_bytes_per_s": 20e9}]  # fmt: skip
    copies = record({"nodes": ["n1"], "settings": {}, "pairs": pairs}, kind="copies")
    check = judged(copies, required={"floor_gb_s": 200})
    assert check.ok is False and "nvlink" in check.remedy
    assert check.evidence == (
        "the slowest pair: 20 GB/s (n1, card 1 and 0), required: 200 GB/s or more"
    )
    pairs[0]["bandwidth_bytes_per_s"] = None
    unreachable = judged(copies, required={"floor_gb_s": 10})
    assert unreachable.ok is False
    assert unreachable.evidence == ("the slowest pair: nothing was measured on n1, card 0 and 1")
    tcp = record({"from": "n1", "to": "n2", "bandwidth_bytes_per_s": 1.2e9}, kind="tcp")
    assert judged(tcp, required={"floor_gb_s": 1.0}).ok is True
    assert "1.2 GB/s (n1 to n2)" in judged(tcp, required={"floor_gb_s": 2}).evidence


def test_what_a_baseline_keeps_of_its_log_comes_back_whole() -> None:
    seen = connected(
        {"n1": read_sample("nccl_tests/016_interleaved_info_2xA100_pcie.log").decode()}
    )
    assert restored(json.loads(json.dumps(seen.whole_record()))) == seen
