"""The gate `transport`: what NCCL connected against what is required. No card is in play here."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.server_spec import ServerSpec
from servemap.nodes.local import LocalNode
from servemap.server.gates.checks import Check
from servemap.server.gates.transport import transport_gate
from servemap.server.gates.transport_paths import connected
from servemap.server.gates.transport_remedies import remedy_table
from servemap.server.launch.node_log import bounded
from tests.corpus import read_sample

SWITCHED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH"}
ENV = [SWITCHED]


def spec(tp: int = 4, **keys: Any) -> ServerSpec:
    base = {"engine": "vllm", "topology": {"tp": tp}}
    return ServerSpec.model_validate({**base, **keys})


def gate(
    logs: dict[str, str], required: dict[str, Any] | None, env: Any = ENV, **keys: Any
) -> Check:
    (check,), _ = transport_gate(spec(transport=required, **keys), logs, env)
    assert check.name == "transport"
    return check


# Two ranks on each of two nodes: a made-up log in NCCL's form, one list a rank.
def rank_lines(
    node: str, ranks: tuple[int, int], *, net: str = "NET/IB/{}/GDRDMA", intra: str = "P2P/CUMEM"
) -> list[list[str]]:
    found = []
    for gpu, rank in enumerate(ranks):
        head = f"{node}:{100 + gpu}:{200 + gpu} [{gpu}] NCCL INFO "
        other, far = ranks[1 - gpu], (rank + 2) % 4
        via = net.format(gpu)
        found.append(
            [
                f"{head}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.77.0.1<0>",
                f"{head}ncclCommInitRankConfig comm 0x55{rank} rank {rank} nranks 4 cudaDev {gpu} "
                f"nvmlDev {gpu} busId {gpu + 1}7000 commId 0xabc - Init COMPLETE",
                f"{head}Channel 00/0 : {rank}[{gpu}] -> {other}[{1 - gpu}] via {intra}",
                f"{head}Channel 01/0 : {rank}[{gpu}] -> {far}[{gpu}] [send] via {via}",
                f"{head}Channel 01/0 : {far}[{gpu}] -> {rank}[{gpu}] [receive] via {via}",
                f"{head}Connected all rings, use ring PXN 0 GDR 1",
            ]
        )
    return found


def text(lines: list[list[str]]) -> str:
    return "".join(f"{line}\n" for rank in lines for line in rank)


def cluster(**paths: str) -> dict[str, str]:
    return {
        "n1": text(rank_lines("gpu-a", (0, 1), **paths)),
        "n2": text(rank_lines("gpu-b", (2, 3), **paths)),
    }


WANTED = {"inter": "NET/IB", "intra": "P2P", "gdr": True, "hcas": ["mlx5_0", "mlx5_3"]}


def test_what_is_required_is_connected() -> None:
    check = gate(cluster(), WANTED)
    assert (check.ok, check.remedy) == (True, "")
    assert check.evidence == (
        "between nodes NET/IB over mlx5_0, mlx5_3 with GDRDMA (8 connections, n1, n2); "
        "within nodes P2P/CUMEM (4 connections, n1, n2)"
    )


def test_the_table_has_the_paths_and_ranks_of_every_node() -> None:
    _, record = transport_gate(spec(transport=WANTED), cluster(), ENV)
    assert record is not None
    assert json.loads(json.dumps(record, allow_nan=False))["ranks"] == [
        {"node": node, "rank": rank, "host": host, "pid": 100 + gpu, "gpu": gpu,
         "bus_id": f"{gpu + 1}7000", "nics": [("mlx5_0", "mlx5_3")[gpu]]}
        for node, host, first in (("n1", "gpu-a", 0), ("n2", "gpu-b", 2))
        for gpu, rank in enumerate((first, first + 1))
    ]  # fmt: skip
    path = record["paths"][0]
    assert (path["scope"], path["path"], path["links"], path["channels"]) == (
        "inter_node", "NET/IB", 4, 1,
    )  # fmt: skip
    assert (path["sends"], path["gdr_send"], path["receives"], path["gdr_receive"]) == (2, 2, 2, 2)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"net": "NET/Socket/{}"}, "n1: 4 connections between nodes are NET/Socket, "
                                   "required: NET/IB"),
        ({"net": "NET/IB/{}"}, "n2: GDRDMA in 0 of 2 sends and 0 of 2 receives over NET/IB, "
                               "required: all"),
        ({"net": "NET/IB/0/GDRDMA"}, "n1: uses mlx5_0, required: mlx5_0, mlx5_3"),
        ({"net": "NET/IB/2/GDRDMA"}, "not shown: the log of n1 has no name for device 2"),
        ({"intra": "SHM/direct/direct"}, "n2: 2 connections within nodes are SHM/direct, "
                                         "required: P2P"),
        ({"net": "NET/OFI/{}/GDRDMA"}, "connections between nodes are NET/OFI, required: NET/IB"),
    ],
)  # fmt: skip
def test_another_path_fails_and_says_which(paths: dict[str, str], said: str) -> None:
    check = gate(cluster(**paths), WANTED)
    assert check.ok is False
    assert said in check.evidence
    assert "connected: " in check.evidence and check.remedy


def test_the_same_path_passes_where_it_is_what_is_required() -> None:
    sockets = cluster(net="NET/Socket/{}", intra="SHM/direct/direct")
    assert gate(sockets, {"inter": "NET/Socket", "intra": "SHM", "gdr": False}).ok is True
    assert gate(cluster(), {"gdr": False}).ok is False
    # HPC-X's plugin drives the same devices; `GDRDMA(PCI)` is what NCCL since 2.27 may write.
    assert gate(cluster(net="NET/IBext_v11/{}/GDRDMA(PCI)/Shared"), {"inter": "NET/IB", "gdr": True}
                ).ok is True  # fmt: skip
    assert gate(cluster(net="NET/IBX/{}"), {"inter": "NET/IB"}).ok is False


def test_one_node_of_two_that_fell_back_is_enough() -> None:
    logs = {**cluster(), "n2": cluster(net="NET/Socket/{}")["n2"]}
    check = gate(logs, {"inter": "NET/IB"})
    assert check.ok is False and "n2: 4 connections" in check.evidence
    assert "n1: " not in check.evidence


def test_a_node_that_shows_nothing_fails_as_not_shown() -> None:
    check = gate({**cluster(), "n2": "INFO: ready\n"}, WANTED)
    assert check.ok is False
    assert "not shown: the log of n2 has no line of NCCL" in check.evidence


def test_a_network_that_is_loaded_or_found_is_not_in_use() -> None:
    """The devices, the network and `GDR 1` are all there; no channel is."""
    loaded = text(
        [[line for line in rank if " via " not in line] for rank in rank_lines("a", (0, 1))]
    )
    loaded += "a:100:200 [0] NCCL INFO Using network IB\n"
    check = gate({"n1": loaded, "n2": loaded}, {"inter": "NET/IB"})
    assert check.ok is False
    assert check.evidence == "; ".join(
        f"not shown: the log of {node} has no connection between nodes" for node in ("n1", "n2")
    )


def test_within_one_node_the_network_may_stand_in_for_shared_memory() -> None:
    """NCCL uses sockets within a node where shared memory is forbidden (NCCL_SHM_DISABLE)."""
    log = text(rank_lines("gpu-a", (0, 1), net="NET/Socket/{}", intra="NET/Socket/0"))
    check = gate({"n1": log}, {"intra": "P2P"}, [{**SWITCHED, "NCCL_SHM_DISABLE": "1"}], tp=2)
    assert check.ok is False
    assert "connections within nodes are NET/Socket" in check.evidence
    assert "NCCL_SHM_DISABLE=1" in check.remedy


@pytest.mark.parametrize(
    ("logs", "required", "tp", "reason"),
    [
        ({"n1": "INFO: gloo\n"}, WANTED, 1, "n/a: there is one card, "
                                            "which NCCL connects to nothing"),
        ({"n1": "INFO: gloo\n"}, None, 2, "n/a: server.transport requires no path; "
                                          "the log shows no connection of NCCL"),
        ({"n1": "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"}, None, 2,
         "n/a: server.transport requires no path; "
         "connected: within nodes P2P/IPC (1 connections, n1)"),
        ({"n1": "x\n"}, {"inter": "NET/IB"}, 2, "n/a: between nodes: the server has one node"),
    ],
)  # fmt: skip
def test_where_there_is_nothing_to_judge(
    logs: dict[str, str], required: dict[str, Any] | None, tp: int, reason: str
) -> None:
    check = gate(logs, required, tp=tp)
    assert (check.ok, check.evidence) == (None, reason)


def test_a_part_that_cannot_be_is_left_out_and_said() -> None:
    log = "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    log += "a:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n"
    check = gate({"n1": log}, WANTED, tp=2)
    assert check.ok is True
    assert check.evidence.endswith("between nodes: the server has one node")
    one_card_each = {
        node: f"{node}:1:1 [0] NCCL INFO Channel 00/0 : {a}[0] -> {b}[0] [send] via NET/Socket/0\n"
        for node, a, b in (("a", 0, 1), ("b", 1, 0))
    }
    check = gate(one_card_each, {"inter": "NET/Socket", "intra": "P2P"}, tp=2)
    assert check.ok is True and check.evidence.endswith("within nodes: one card on each")
    assert gate(one_card_each, {"intra": "P2P"}, tp=4).ok is False, "here each node has two cards"
    # Data parallel ranks share the cards of tp, or have their own: the log tells.
    shared = {"topology": {"tp": 2, "dp": 2}}
    assert gate(one_card_each, {"intra": "P2P"}, **shared).ok is None
    other = {
        **one_card_each,
        "a": one_card_each["a"] + one_card_each["a"].replace("[0] NCCL", "[1] NCCL"),
    }
    assert gate(other, {"intra": "P2P"}, **shared).ok is False
    assert gate({"a": "x\n"}, {"intra": "P2P"}, topology={"tp": 1, "dp": 8}).ok is False


def test_an_engine_without_nccl_has_no_such_gate() -> None:
    assert transport_gate(spec(engine="llamacpp"), {"n1": "x\n"}, [{}]) == ([], None)


def test_required_and_no_line_of_nccl() -> None:
    check = gate({"n1": "INFO: gloo is used\n"}, {"intra": "P2P"}, tp=2)
    assert check.ok is False
    assert check.evidence == "not shown: the log of n1 has no line of NCCL"
    assert "gloo" in check.remedy


@pytest.mark.parametrize(
    ("env", "log", "container", "remedy"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "", None, "NCCL_IB_DISABLE=1"),
        ({"NCCL_NET": "Socket"}, "", None, "NCCL_NET=Socket"),
        ({"NCCL_IB_HCA": "=mlx5_9"}, "", None, "NCCL_IB_HCA==mlx5_9"),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, "", None, "NCCL_SOCKET_IFNAME=eth0"),
        ({}, "a:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n", None,
         "NCCL_IB_DISABLE=1"),
        ({}, "a:1:1 [0] NCCL INFO Failed to open libibverbs.so[.1]\n", None, "libibverbs"),
        ({}, "a:1:1 [0] NCCL INFO NET/IB : No device found.\n", None, "NCCL found no RDMA device"),
        ({}, "", {"image": "i"}, "The container has no /dev/infiniband"),
        ({}, "", {"image": "i", "devices": ["/dev/infiniband"]}, "Nothing that is known here"),
        ({}, "", {"image": "i", "args": ["--privileged"]}, "Nothing that is known here"),
        ({"NCCL_IB_DISABLE": "0"}, "", None, "Nothing that is known here"),
    ],
)  # fmt: skip
def test_a_fall_back_names_the_variable_or_the_device(
    env: dict[str, str], log: str, container: dict[str, Any] | None, remedy: str
) -> None:
    logs = cluster(net="NET/Socket/{}")
    logs["n1"] += log
    check = gate(logs, {"inter": "NET/IB"}, [{**SWITCHED, **env}], container=container)
    assert check.ok is False
    assert check.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("env", "remedy"),
    [
        ({"NCCL_DEBUG": "WARN"}, "NCCL_DEBUG=WARN hides"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL,NET"}, "NCCL_DEBUG_SUBSYS=COLL,NET"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "^INIT"}, "NCCL_DEBUG_SUBSYS=^INIT"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "^COLL"}, "The server's log must hold"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}, "The server's log must hold"),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/n"}, "NCCL_DEBUG_FILE=/tmp/n"),
    ],
)
def test_what_hides_the_log_is_named(env: dict[str, str], remedy: str) -> None:
    check = gate({"n1": "INFO: ready\n"}, {"intra": "P2P"}, [env], tp=2)
    assert check.remedy.startswith(remedy)


def test_every_remedy_is_whole_and_can_be_given() -> None:
    conditions = {"variable", "finding", "container"}
    kinds = {entry["problem"] for entry in remedy_table()}
    assert kinds == {"socket", "inter", "gdr", "hca", "p2p", "shown", "unread", "ranks",
                     "slow-inter", "slow-intra"}  # fmt: skip
    for entry in remedy_table():
        assert entry["source"].startswith("https://")
        assert len(conditions & {*entry}) <= 1
        assert ("{value}" in entry["remedy"]) == ("variable" in entry)
    for kind in kinds:
        general = [
            entry for entry in remedy_table()
            if entry["problem"] == kind and not conditions & {*entry}
        ]  # fmt: skip
        assert len(general) == 1


FAKE_TP8 = "INFO 11-30 01:02:03 [parallel_state.py:1607] world_size=4 rank=0 backend=nccl\n"


@pytest.mark.parametrize(
    "form",
    [
        # vLLM's log with lines of its processes in between, NCCL's own lines plain.
        lambda line, at: f"(EngineCore pid=9) (Worker_TP{at} pid=8) {FAKE_TP8}{line}\n",
        # SGLang's.
        lambda line, at: f"[2026-11-30 01:02:03 TP{at}] Init torch distributed begin.\n{line}\n",
        # Prefixes of ranks before NCCL's lines.
        lambda line, at: f"(RayWorkerWrapper pid={at}, ip=10.77.0.12) {line}\n",
        lambda line, at: f"(Worker_TP{at} pid=8) {line}\n",
        lambda line, at: f"\x1b[36m(Worker_TP{at} pid=8)\x1b[0;0m {line}\r\n",
        lambda line, at: f"[2026-11-30 01:02:03 TP{at}] {line}\n",
        lambda line, at: f"[2026-11-30 01:02:03] {line}\n",
        lambda line, at: f"{at}: {line}\n",
        lambda line, at: f"[rank{at}]: {line}\n",
    ],
)
def test_the_engines_own_lines_and_prefixes_change_nothing(form: Any) -> None:
    plain = cluster()
    dressed = {
        node: "".join(form(line, at) for at, line in enumerate(log.splitlines()))
        for node, log in plain.items()
    }
    assert gate(dressed, WANTED) == gate(plain, WANTED)
    assert connected(dressed).ranks == connected(plain).ranks


@given(st.data(), st.sampled_from([{}, {"net": "NET/Socket/{}"}, {"intra": "SHM/direct"}]))
def test_interleaved_ranks_give_the_same_answer(data: st.DataObject, paths: dict[str, str]) -> None:
    """Ranks write one file: each one's lines keep their order, the ranks' lines mix."""
    logs = {}
    for node, ranks in (("gpu-a", (0, 1)), ("gpu-b", (2, 3))):
        lines = rank_lines(node, ranks, **paths)
        turns = [at for at, rank in enumerate(lines) for _ in rank]
        queues = [iter(rank) for rank in lines]
        logs[node] = "".join(f"{next(queues[at])}\n" for at in data.draw(st.permutations(turns)))
    whole = {
        "gpu-a": text(rank_lines("gpu-a", (0, 1), **paths)),
        "gpu-b": text(rank_lines("gpu-b", (2, 3), **paths)),
    }
    assert connected(logs) == connected(whole)
    assert gate(logs, WANTED) == gate(whole, WANTED)


def test_communicators_of_a_pipeline_number_their_ranks_anew() -> None:
    """TP2 x PP2: ranks 0 and 1 are on both nodes, so the transport tells what crosses them."""
    logs = cluster()
    for stage, (node, host) in enumerate((("n1", "gpu-a"), ("n2", "gpu-b"))):
        for gpu in (0, 1):
            head = f"{host}:{100 + gpu}:200 [{gpu}] NCCL INFO "
            logs[node] += (
                f"{head}Channel 00/0 : {gpu}[{gpu}] -> {1 - gpu}[{1 - gpu}] via P2P/CUMEM\n"
                f"{head}Channel 00/0 : {stage}[{gpu}] -> {1 - stage}[{gpu}] [send] "
                f"via NET/IB/{gpu}/GDRDMA\n"
            )
    seen = connected(logs)
    assert [(path.node, path.scope, path.path, path.links) for path in seen.paths] == [
        ("n1", "inter_node", "NET/IB", 6), ("n1", "intra_node", "P2P/CUMEM", 4),
        ("n2", "inter_node", "NET/IB", 6), ("n2", "intra_node", "P2P/CUMEM", 4),
    ]  # fmt: skip
    # Of a process's ranks the table has that in the largest communicator.
    assert [row["rank"] for row in seen.ranks] == [0, 1, 2, 3]
    assert gate(logs, WANTED).ok is True


def test_a_network_within_a_node_of_several_is_no_way_between_nodes() -> None:
    logs = cluster(intra="NET/Socket/0")
    check = gate(logs, {"inter": "NET/IB", "intra": "P2P"})
    assert check.ok is False
    assert "n1: 2 connections within nodes are NET/Socket" in check.evidence
    assert "between nodes are" not in check.evidence


RECORDED = [
    "nccl_logs/004_socket_fallback_2.27_4rank.log",
    "nccl_logs/006_socket_old_2.11_two_nodes_interleaved.log",
    "nccl_logs/007_shm_direct_2xA800.log",
    "nccl_logs/009_p2p_cumem_8gpu_timeout_tail.log",
    "nccl_logs/014_libfabric_newest_2.31_flush.log",
    "nccl_tests/016_interleaved_info_2xA100_pcie.log",
    "nccl_tests/017_interleaved_info_2xA100_fault_topo.log",
    "nccl_tests/019_efa_16gpu_2node_prefixed_full.log",
]
HEAD = "gpu-a:100:200 [0] NCCL INFO "
SOCKET = "Channel 09/0 : 0[0] -> 2[0] [send] via NET/Socket/0"


@pytest.mark.parametrize(
    "line",
    [
        f"{HEAD}{SOCKET}",  # The last line, without its end.
        f"{HEAD}Channel 09/0 : 0[0] -> 2[0] [send] v",
        f"{HEAD}{SOCKET}/\n",
        f"{HEAD}{SOCKET[:-2]}\n",
        f"{HEAD}{SOCKET.replace('Socket', 'IB')}/GDR\n",
        f"{HEAD}{SOCKET[:-1]}eth0\n",
        f"{HEAD}{SOCKET} comm 0x12 nRanks 02 and more\n",
        f"{HEAD}{SOCKET.replace(': 0[0] -> 2[0]', ': 0[-1] -> 2[0]')}\n",
        f"{HEAD}{SOCKET.replace(' : 0[0] -> 2[0]', ': 0[0]->2[0]')}\n",
        f"{HEAD}{SOCKET[:-4]}\nket/0\n",
        f"{HEAD}Chan{HEAD}nel{SOCKET[7:]}\n",
        f"{HEAD}Chan\nnel{SOCKET[7:]}\n",
        f"nel{SOCKET[7:]}{HEAD}Connected all rings\n",
        f'{{"log":"{HEAD}{SOCKET}"}}\n',
        f'{{"log":"{HEAD}{SOCKET}/GDRDMA"}}\n',
        f"{HEAD}CollNet 00/0 : 3 [sen\n",
        f"{HEAD}Channel 00/0 : 0[0] -> 1[1] via direct shared mem\n",
    ],
)
def test_a_line_of_a_connection_that_cannot_be_read_passes_nothing(line: str) -> None:
    logs = cluster()
    logs["n1"] += line
    check = gate(logs, {"inter": "NET/IB"})
    assert check.ok is False
    assert "not shown: 1 lines of connections in the log of n1 are broken: " in check.evidence
    assert check.remedy.startswith("Look at these lines in the log.")
    assert "n1 are broken" in gate(logs, None).evidence


@given(st.data())
def test_a_socket_that_is_cut_anywhere_never_passes_as_read(data: st.DataObject) -> None:
    """By a line end or by the head of another rank; before ` -> ` a cut line says no path."""
    line = f"{HEAD}{SOCKET}"
    at = data.draw(st.integers(line.index(" -> ") + 5, len(line) - 1))
    between = data.draw(
        st.sampled_from(["\n", "gpu-a:101:201 [1] NCCL INFO Connected all rings\n"])
    )
    logs = cluster()
    logs["n1"] += f"{line[:at]}{between}{line[at:]}\n"
    assert gate(logs, {"inter": "NET/IB"}).ok is False


@pytest.mark.parametrize(
    "line",
    [
        "INFO: weights are loaded via NFS, requests go 0 -> 1",
        f"{HEAD}Channel 00/02 :    0   1   2   3",
        f"{HEAD}Ring 00 : 0 -> 1 -> 2 comm 0x12 nRanks 04 busId b000",
        f"{HEAD}Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
        f"{HEAD}transport/net.cc:1134 -> 6",
        f"{HEAD.replace('INFO', 'TRACE')}Ring 00 : 1[1] <- 0[0] via P2P/CUMEM",
        f"{HEAD}Channel 01/0 : 0[0] -> 2[0] [send] via NET/IB/0(1)/GDRDMA(PCI)/Shared",
        f"{HEAD}Channel 01/0 : 0[c1000] -> 2[c6000] [send] via NET/IB/0/GDRDMA comm 0x1 nRanks 04",
        f"{HEAD}CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
    ],
)
def test_other_lines_are_no_broken_connections(line: str) -> None:
    logs = cluster()
    logs["n1"] += f"{line}\n"
    assert gate(logs, WANTED).ok is True


@pytest.mark.parametrize("file", RECORDED)
def test_recorded_logs_have_no_broken_connection(file: str) -> None:
    seen = connected({"n1": read_sample(file).decode()})
    assert seen.paths and seen.unread == ()


def without(log: str, *words: str) -> str:
    lines = log.splitlines(keepends=True)
    return "".join(line for line in lines if not any(word in line for word in words))


def test_a_rank_that_the_logs_lack_is_not_shown() -> None:
    logs = cluster()
    silent = {**logs, "n2": without(logs["n2"], "gpu-b:101:")}
    check = gate(silent, WANTED | {"hcas": None})
    assert check.ok is False
    assert "not shown: no log says that rank 3 of the 4 joined communicator 0xabc" in check.evidence
    assert check.remedy.startswith("Every rank has to log its connections")
    # Its joining is there, its connections are not.
    joined = {**logs, "n2": without(logs["n2"], "gpu-b:101:201 [1] NCCL INFO Channel", "-> 3[")}
    check = gate(joined, {"inter": "NET/IB"})
    assert "not shown: 3 of 4 ranks logged a connection" in check.evidence
    # Nobody tells how many there are but the spec.
    bare = {node: without(log, " - Init ") for node, log in silent.items()}
    assert "3 of 4 ranks logged" in gate(bare, {"inter": "NET/IB"}).evidence
    assert gate({node: without(log, " - Init ") for node, log in logs.items()}, WANTED).ok is True


def test_a_rank_whose_joining_was_not_read_is_known_by_its_connections() -> None:
    logs = cluster()
    logs["n2"] = without(logs["n2"], "rank 3 nranks 4")
    assert gate(logs, WANTED).ok is True


def test_of_many_missing_ranks_the_first_are_named() -> None:
    logs = {node: log.replace("nranks 4", "nranks 5000000") for node, log in cluster().items()}
    (said,) = connected(logs).missing
    assert said.startswith("no log says that rank 4, 5, 6, 7, 8, 9, 10, 11, 4999988 more of the")


def test_ranks_that_the_spec_does_not_count_are_missed_too() -> None:
    """Expert parallel over data parallel ranks: NCCL says how many there are."""
    logs = cluster()
    logs["n2"] = without(logs["n2"], "gpu-b:101:")
    check = gate(logs, {"inter": "NET/IB"}, topology={"tp": 1, "dp": 4})
    assert check.ok is False and "rank 3 of the 4" in check.evidence


@pytest.mark.parametrize("removed", ["", " commId 0xabc", " - Init "])
def test_the_log_of_one_node_is_not_that_of_another(removed: str) -> None:
    log = cluster()["n1"]
    log = without(log, removed) if removed == " - Init " else log.replace(removed, "")
    check = gate({"n1": log, "n2": log}, {"inter": "NET/IB"})
    assert check.ok is False and "not shown: " in check.evidence
    assert "rank" in check.evidence


def test_one_communicator_has_each_rank_once() -> None:
    whole = "".join(cluster().values())
    check = gate({"n1": whole, "n2": whole}, {"inter": "NET/IB"})
    assert "not shown: rank 0 of communicator 0xabc is in the logs of n1 and n2" in check.evidence


@pytest.mark.parametrize("size", ["2", "3"])
def test_a_rank_beyond_its_communicator_was_not_read(size: str) -> None:
    line = rank_lines("gpu-b", (2, 3))[1][1].replace("nranks 4", f"nranks {size}")
    assert connected({"n1": f"{line}\n"}).ranks == ()


def test_each_process_numbers_its_devices_by_itself() -> None:
    """All data on mlx5_0, which rank 1 and 3 call their device 1."""
    names = "[0]mlx5_0:1/IB [1]mlx5_3:1/IB"
    logs = {}
    for node, host, ranks in (("n1", "gpu-a", (0, 1)), ("n2", "gpu-b", (2, 3))):
        first, second = rank_lines(host, ranks)
        second[0] = second[0].replace(names, "[0]mlx5_3:1/IB [1]mlx5_0:1/IB")
        logs[node] = text([first, second])
    check = gate(logs, WANTED)
    assert check.ok is False and "n1: uses mlx5_0, required: mlx5_0, mlx5_3" in check.evidence
    assert gate(logs, WANTED | {"hcas": ["mlx5_0"]}).ok is True
    assert [row["nics"] for row in connected(logs).ranks] == [["mlx5_0"]] * 4


def test_a_process_that_names_no_device_has_the_names_of_its_host_where_they_agree() -> None:
    first, second = rank_lines("gpu-a", (0, 1))
    logs = {**cluster(), "n1": text([first, second[1:]])}
    assert gate(logs, WANTED).ok is True
    other = [
        line.replace("gpu-a:10", "gpu-a:90").replace("mlx5_0", "mlx5_7") for line in second[:1]
    ]
    logs["n1"] += text([[line.replace("[1]mlx5_3", "[1]mlx5_8") for line in other]])
    check = gate(logs, WANTED)
    assert "not shown: the log of n1 has no name for device 1" in check.evidence


def test_a_log_whose_middle_was_not_read_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_text(cluster()["n1"] + "x\n" * 1000)
    cut = b"".join(bounded(LocalNode("n1"), str(path), head=1800, tail=50)).decode()
    check = gate({**cluster(), "n1": cut}, WANTED)
    assert check.evidence.endswith("; the log of n1 was too long, its middle was not read")
    assert "too long" not in gate(cluster(), WANTED).evidence


def test_virtual_devices_are_the_real_ones_that_they_join() -> None:
    logs = {
        node: log
        + "".join(
            f"{host}:{pid}:1 [0] NCCL INFO NET/IB : Made virtual device [0] name=mlx5_0+mlx5_1 x\n"
            for pid in (100, 101)
        )
        for (node, log), host in zip(
            cluster(net="NET/IB/0/GDRDMA").items(), ("gpu-a", "gpu-b"), strict=True
        )
    }
    assert gate(logs, {"hcas": ["mlx5_0", "mlx5_1"]}).ok is True


FOLDER = "nccl_logs/"
NOT_SHOWN = [
    "001_ofi_fsdp_p5_excerpt.log", "002_doc_net_lines_variants.txt",
    "011_fail_no_socket_interface.log", "012_fail_ib_completion_err12_wrapped.log",
    "013_fail_vllm_tp2_oom_shm.log",
]  # fmt: skip


def sample_logs(file: str, nodes: int) -> dict[str, str]:
    """A sample as the log of one node; as that of each of two where it is of several machines."""
    log = read_sample(file).decode()
    return {f"n{number + 1}": log for number in range(nodes)}


@pytest.mark.parametrize(
    ("file", "nodes", "fitting", "unfitting", "remedy"),
    [
        ("007_shm_direct_2xA800.log", 1, {"intra": "SHM/direct"}, {"intra": "P2P"},
         "See with nvidia-smi topo -p2p"),
        ("../nccl_tests/016_interleaved_info_2xA100_pcie.log", 1, {"intra": "P2P"},
         {"intra": "SHM"}, "See with nvidia-smi topo -p2p"),
        ("006_socket_old_2.11_two_nodes_interleaved.log", 2, {"inter": "NET/Socket"},
         {"inter": "NET/IB", "hcas": ["mlx5_0"]}, "libibverbs is missing"),
    ],
)  # fmt: skip
def test_recorded_logs_with_what_fits_and_what_does_not(
    file: str, nodes: int, fitting: Any, unfitting: Any, remedy: str
) -> None:
    logs = sample_logs(FOLDER + file, nodes)
    assert gate(logs, fitting, tp=2).ok is True
    check = gate(logs, unfitting, tp=2)
    assert check.ok is False
    assert check.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("file", "nodes", "fitting", "unfitting", "remedy", "lacking"),
    [
        ("004_socket_fallback_2.27_4rank.log", 2, {"inter": "NET/Socket", "gdr": False},
         {"inter": "NET/IB", "gdr": True}, "Nothing that is known here forces sockets",
         "no log says that rank 0, 1, 2 of the 4 joined communicator 0x15c1c76db987339e"),
        ("009_p2p_cumem_8gpu_timeout_tail.log", 1, {"intra": "P2P/CUMEM"}, {"intra": "P2P/IPC"},
         "See with nvidia-smi topo -p2p", "6 of 8 ranks logged a connection"),
        ("014_libfabric_newest_2.31_flush.log", 2, {"inter": "NET/Libfabric", "gdr": True},
         {"inter": "NET/IB"}, "A plugin of the image", "1 of 8 ranks logged a connection"),
    ],
)  # fmt: skip
def test_recorded_excerpts_lack_ranks_and_no_more(
    file: str, nodes: int, fitting: Any, unfitting: Any, remedy: str, lacking: str
) -> None:
    logs = sample_logs(FOLDER + file, nodes)
    check = gate(logs, fitting, tp=8)
    assert (check.ok, check.evidence.partition("; ")[0]) == (False, f"not shown: {lacking}")
    assert check.evidence.count("required: ") == 0
    assert gate(logs, unfitting, tp=8).remedy.startswith(remedy)


@pytest.mark.parametrize("file", NOT_SHOWN)
def test_recorded_logs_without_a_connection_show_nothing(file: str) -> None:
    """They name networks and devices (OFI, eight HCAs); nothing was connected over them."""
    logs = sample_logs(FOLDER + file, 2)
    assert gate(logs, None).evidence.startswith("n/a: server.transport requires no path")
    for required in ({"inter": "NET/IB"}, {"inter": "NET/OFI"}, {"gdr": True}, {"intra": "P2P"}):
        check = gate(logs, required)
        assert check.ok is False and check.evidence.startswith("not shown: the log of n1")


def test_a_recorded_job_on_two_machines() -> None:
    lines = read_sample("nccl_tests/019_efa_16gpu_2node_prefixed_full.log").decode().splitlines()
    logs = {
        f"n{number}": "".join(f"{line}\n" for line in lines if f"worker-{number}:" in line)
        for number in (0, 1)
    }
    required = {"inter": "NET/AWS Libfabric", "intra": "P2P/IPC", "gdr": True}
    assert gate(logs, required, tp=16).ok is True
    assert gate(logs, {"inter": "NET/IB"}, tp=16).ok is False
    lacking = {**logs, "n1": without(logs["n1"], "worker-1:40:")}
    assert "rank 15 of the 16" in gate(lacking, required, tp=16).evidence
    seen = connected(logs)
    assert [row["rank"] for row in seen.ranks] == list(range(16))
    one_file = connected({"n": "".join(f"{line}\n" for line in lines)})
    assert sum(path.links for path in seen.paths) == sum(path.links for path in one_file.paths)
    assert {(path.scope, path.path) for path in seen.paths} == {
        (path.scope, path.path) for path in one_file.paths
    }
