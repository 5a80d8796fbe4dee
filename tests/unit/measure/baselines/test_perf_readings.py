"""Rows of a baseline out of tables of nccl-tests and NCCL's log, on recorded output."""

from typing import Any

import pytest

from servemap.measure.baselines.node_logs import logs_by_node
from servemap.measure.baselines.perf_readings import chosen_by_size, size_rows
from servemap.parsers.communication.nccl_log import read_log
from servemap.parsers.communication.nccl_state import Algorithm
from servemap.parsers.kinds import parse
from servemap.server.gates.transport_paths import connected
from tests.corpus import read_sample

INTERLEAVED = "nccl_tests/016_interleaved_info_2xA100_pcie.log"
TWO_NODES = "nccl_tests/019_efa_16gpu_2node_prefixed_full.log"


def run_of(file: str) -> dict[str, Any]:
    return dict(parse("nccl-tests", read_sample(file)).data["runs"][0])


def test_rows_of_a_table_that_the_log_broke() -> None:
    chosen = chosen_by_size(
        "all_reduce", [read_log(read_sample(INTERLEAVED).decode(), []).algorithms]
    )
    rows = size_rows("all_reduce", 20, run_of(INTERLEAVED), chosen)
    row = next(row for row in rows if row["size_bytes"] == 64 << 20)
    assert row["time_s"] == {"min": None, "mean": pytest.approx(391.6e-6), "p50": None, "max": None}
    assert (row["algbw_bytes_per_s"], row["busbw_bytes_per_s"], row["wrong"]) == (
        171.36e9, 171.36e9, 0,
    )  # fmt: skip
    assert row["in_place"]["busbw_bytes_per_s"] == 171.42e9
    assert [(one["algorithm"], one["protocol"]) for one in row["chosen"]] == [("RING", "SIMPLE")]
    assert row["chosen"][0]["channels"] == 24


def test_what_nccl_chose_is_counted_by_size_and_operation() -> None:
    ring = Algorithm("AllReduce", 8192, "RING", "LL", 4)
    tree = Algorithm("AllReduce", 8192, "TREE", "LL", 2)
    other = Algorithm("AllGather", 8192, "RING", "SIMPLE", 8)
    found = chosen_by_size("all_reduce", [{ring: 2, tree: 3}, {other: 9}])
    assert [(one["algorithm"], one["times"]) for one in found[8192]] == [("TREE", 3), ("RING", 2)]
    assert chosen_by_size("all_to_all", [{ring: 1}]) == {}
    old = Algorithm(None, 64, "RING", "LL", None)
    assert chosen_by_size("all_gather", [{old: 1}])[64][0]["channels"] is None


def test_one_stream_of_two_nodes_is_told_apart_by_rank() -> None:
    told = logs_by_node(read_sample(TWO_NODES).decode(), ["n1"] * 8 + ["n2"] * 8)
    seen = connected(told.logs, told.unplaced)
    assert list(told.logs) == ["n1", "n2"]
    assert (seen.unread, seen.missing, seen.connected) == ((), (), 16)
    assert {rank["node"]: rank["host"] for rank in seen.ranks} == {
        "n1": "nccl-tests-efa-16-worker-0", "n2": "nccl-tests-efa-16-worker-1",
    }  # fmt: skip
    assert [sum(rank["node"] == node for rank in seen.ranks) for node in ("n1", "n2")] == [8, 8]
    between = {(p.node, p.path) for p in seen.paths if p.scope == "inter_node"}
    assert between == {("n1", "NET/AWS Libfabric"), ("n2", "NET/AWS Libfabric")}


def line(host: str, pid: int, rank: int, ranks: int = 2) -> str:
    head = f"{host}:{pid}:{pid} [0] NCCL INFO "
    return f"{head}comm 0x1 rank {rank} nranks {ranks} cudaDev 0 busId 17000 - Init COMPLETE"


def test_messages_of_two_nodes_on_one_line_are_cut_apart() -> None:
    text = f"{line('a', 7, 0)}\n{line('b', 7, 1)}\n  8192  2048{line('a', 7, 0)}{line('b', 7, 1)}\n"
    told = logs_by_node(text, ["n1", "n2"])
    assert told.unplaced == []
    assert told.logs == {
        "n1": f"{line('a', 7, 0)}\n" * 2, "n2": f"{line('b', 7, 1)}\n" * 2,
    }  # fmt: skip


def test_a_process_that_may_be_on_either_node_is_told_of_neither() -> None:
    text = f"{line('box', 7, 0)}\n{line('box', 7, 1)}\n{link('box', 7, 0, 1)}\n"
    assert logs_by_node(text, ["n1", "n2"]) == (
        {},
        ["Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"],
    )
    assert logs_by_node("no log", ["n1", "n1"]) == ({"n1": "no log"}, [])
    assert logs_by_node("", ["n1"]) == ({}, [])


def link(host: str, pid: int, rank: int, other: int) -> str:
    head = f"{host}:{pid}:{pid} [0] NCCL INFO "
    return f"{head}Channel 00/0 : {rank}[0] -> {other}[0] [send] via NET/IB/0"


def test_a_process_that_did_not_say_that_it_joined_is_known_by_its_connections() -> None:
    text = f"{line('a', 7, 0)}\n{link('a', 7, 0, 1)}\n{link('b', 7, 1, 0)}\n"
    assert list(logs_by_node(text, ["n1", "n2"]).logs) == ["n1", "n2"]


def test_a_rank_that_cannot_be_gives_no_node() -> None:
    """A number that a second writer broke: beyond its communicator, or beyond all ranks."""
    text = f"{line('a', 7, 0)}\n{line('b', 7, 9)}\n{link('c', 7, 8, 0)}\n"
    told = logs_by_node(text, ["n1", "n2"])
    assert list(told.logs) == ["n1"]
    assert told.unplaced == ["Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0"]


@pytest.mark.parametrize("broken", ["{}", "{}\n", "b:7:7 [0] NCCL INFO {}\n"])
def test_broken_lines_of_connections_are_kept_whosever_they_are(broken: str) -> None:
    text = f"{line('a', 7, 0)}\n{line('a', 8, 1)}\n"
    part = "0 : 1[0] -> 0[0] [send] via NET/Sock"
    assert logs_by_node(f"{text}{broken.format(part)}", ["n1", "n2"]).unplaced == [part]
