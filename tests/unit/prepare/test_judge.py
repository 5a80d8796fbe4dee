"""Judging what a node's survey says; nothing here asks a node."""

from typing import Any

import pytest

from servemap.model.errors import ConnectionLostError, NodeError
from servemap.model.server_spec import Build, Container, NodeSpec, ServerSpec
from servemap.prepare import judge_fabric, judge_machine, judge_software
from servemap.prepare.lines import Line, count_bytes, judged, ok, some, table
from servemap.prepare.survey import Answer
from servemap.prepare.wanted import Wanted


def want(**keys: Any) -> Wanted:
    node = NodeSpec.model_validate(
        {
            "id": "n",
            "accelerators": 8,
            "rails": [{"netdev": "eth0", "hca": "mlx5_0"}, {"netdev": "eth1"}],
            **keys.pop("node", {}),
        }
    )
    server = ServerSpec.model_validate({"engine": "sglang", **keys.pop("server", {})})
    return Wanted(
        **{
            "spec": node,
            "servers": (server,),
            "clients": {},
            "model_path": "/m",
            "ports": {30000: "server.port", 29500: "server.master_port"},
            "tools": {"ip": ("the facts of addresses",), "dcgmi": ("dcgm",)},
            "required": frozenset({"dcgmi"}),
            **keys,
        }
    )


def state(line: Line) -> str:
    assert bool(line.remedy) == (line.state != "ok"), "what is not ok says what to do"
    assert line.seen
    return line.state


def test_a_connection_that_failed_is_said_in_its_own_words() -> None:
    error = ConnectionLostError("host key is not known", "n, known_hosts", "add it")
    line = judge_machine.ssh_line("n", Answer(unreachable=error))
    assert state(line) == "FAIL"
    assert line.seen == "host key is not known (n, known_hosts)"
    assert line.remedy == "add it"
    assert state(judge_machine.ssh_line("n", Answer("connected in 5 ms"))) == "ok"


@pytest.mark.parametrize(
    ("version", "expected"),
    [([3, 8, 0], "ok"), ([3, 7, 9], "FAIL"), ([3, 13, 1], "ok"), (None, "?")],
)
def test_python(version: Any, expected: str) -> None:
    answer = Answer("w", found={"python": {"version": version, "executable": "/p"}})
    assert state(judge_machine.python_line("n", answer)) == expected


def test_python_that_does_not_run() -> None:
    line = judge_machine.python_line("n", Answer("w", broken=NodeError("no python3", "n", "add")))
    assert (state(line), line.seen, line.remedy) == ("FAIL", "no python3", "add")


@pytest.mark.parametrize(
    ("writable", "kind", "expected"),
    [(True, "ext4", "ok"), (True, None, "ok"), (True, "nfs4", "warn"), (False, "ext4", "FAIL"),
     (True, "lustre", "warn")],
)  # fmt: skip
def test_work_folder(writable: bool, kind: str | None, expected: str) -> None:
    disk = {"path": "/w", "folder": "/", "writable": writable, "type": kind}
    assert state(judge_machine.work_folder_line("n", disk)) == expected


@pytest.mark.parametrize(
    ("free", "planned", "expected"),
    [(10**12, 10**9, "ok"), (10**12, 6 * 10**11, "warn"), (10**12, 2 * 10**12, "FAIL"),
     (10**8, 0, "FAIL")],
)  # fmt: skip
def test_room(free: int, planned: int, expected: str) -> None:
    line = judge_machine.room_line("n", "disk space", free, planned, "move")
    assert state(line) == expected
    assert "planned" in line.seen


@pytest.mark.parametrize(
    ("offset_ns", "error_ns", "expected"),
    [(1000, 1000, "ok"), (-90_000_000, 1000, "ok"), (-200_000_000, 1000, "warn"),
     (0, 6_000_000, "warn")],
)  # fmt: skip
def test_clock(offset_ns: int, error_ns: int, expected: str) -> None:
    assert state(judge_machine.clock_line("n", offset_ns, error_ns)) == expected


def test_ports() -> None:
    assert state(judge_machine.ports_line(want(), [])) == "ok"
    rows = [
        {"port": 30000, "pid": 7, "comm": "python", "uid": 0},
        {"port": 29500, "pid": None, "comm": None, "uid": 1001},
    ]
    line = judge_machine.ports_line(want(), rows)
    assert state(line) == "FAIL"
    assert "30000: pid 7 (python)" in line.seen
    assert "29500: a process of uid 1001" in line.seen
    assert line.remedy.endswith("server.master_port, server.port")


def test_tools() -> None:
    here = {"ip": "/sbin/ip", "dcgmi": "/usr/bin/dcgmi"}
    assert state(judge_machine.tools_line(want(), here)) == "ok"
    line = judge_machine.tools_line(want(), {**here, "ip": None})
    assert (state(line), line.remedy) == ("warn", "install the package iproute2")
    line = judge_machine.tools_line(want(), {**here, "dcgmi": None})
    assert (state(line), line.remedy) == ("FAIL", "install NVIDIA's datacenter-gpu-manager")
    assert "no dcgmi, for dcgm" in line.seen


def test_sudo_memlock_perf() -> None:
    assert state(judge_machine.sudo_line("n", {"works": True})) == "ok"
    assert state(judge_machine.sudo_line("n", {"works": False, "said": "password"})) == "FAIL"
    small = {"soft_bytes": 8_388_608, "hard_bytes": None}
    line = judge_machine.memlock_line(want(), small)
    assert state(line) == "FAIL"
    assert "8.39 MB" in line.seen
    assert state(judge_machine.memlock_line(want(), {"soft_bytes": None})) == "ok"
    contained = want(server={"container": {"image": "i"}})
    assert state(judge_machine.memlock_line(contained, small)) == "ok"
    user = {"uid": 1000}
    for level, uid, expected in (
        (0, user, "ok"),
        (-1, user, "ok"),
        (2, user, "warn"),
        (2, {"uid": 0}, "ok"),
        (None, user, "?"),
    ):
        found = {"level": level, "reason": "No such file"}
        assert state(judge_machine.perf_line("n", found, uid)) == expected


LINKS = {"eth0": {"mtu": 9000, "operstate": "up"}, "eth1": {"mtu": 1500, "operstate": "unknown"}}


def test_rails() -> None:
    assert judge_fabric.rail_mtus(want(), LINKS) == {0: 9000, 1: 1500}
    same = ("h", {0: 9000, 1: 1500})
    assert state(judge_fabric.mtu_line(want(), LINKS, None)) == "ok"
    assert state(judge_fabric.mtu_line(want(), LINKS, same)) == "ok"
    line = judge_fabric.mtu_line(want(), LINKS, ("h", {0: 4200, 1: 1500}))
    assert state(line) == "FAIL"
    assert line.seen == "rail 0: eth0 has MTU 9000, that of h has 4200"
    down = {**LINKS, "eth1": {"mtu": 1500, "operstate": "down"}}
    assert "rail 1: eth1 is down" in judge_fabric.mtu_line(want(), down, same).seen
    line = judge_fabric.mtu_line(want(), {**LINKS, "eth0": None}, same)
    assert "there is no interface eth0" in line.seen
    assert judge_fabric.rail_mtus(want(), {**LINKS, "eth0": None}) == {1: 1500}


def port(**changes: Any) -> dict[str, Any]:
    """A made-up RoCE device with one port, as `show_gids` of a real one has it (simulated)."""
    gids = {
        "0": {"gid": "fe80:0000:0000:0000:689c:b8ff:fedf:3b01", "type": "IB/RoCE v1"},
        "1": {"gid": "fe80:0000:0000:0000:689c:b8ff:fedf:3b01", "type": "RoCE v2"},
        "2": {"gid": "0000:0000:0000:0000:0000:ffff:c0a8:0202", "type": "IB/RoCE v1"},
        "3": {"gid": "0000:0000:0000:0000:0000:ffff:c0a8:0202", "type": "RoCE v2"},
    }
    one = {"state": "4: ACTIVE", "rate": "400 Gb/sec", "link_layer": "Ethernet", "gids": gids}
    return {"mlx5_0": {"netdevs": ["eth0"], "ports": {"1": {**one, **changes}}}}


def test_gid_of_roce() -> None:
    line = judge_fabric.gid_line(want(), port())
    assert (state(line), line.seen) == ("ok", "mlx5_0 RoCE v2 at 3")
    chosen = want(server={"env": {"NCCL_IB_GID_INDEX": "1"}})
    assert judge_fabric.gid_line(chosen, port()).seen == "mlx5_0 RoCE v2 at 1"
    wrong = want(server={"env": {"NCCL_IB_GID_INDEX": "2"}})
    line = judge_fabric.gid_line(wrong, port())
    assert state(line) == "FAIL"
    assert line.seen == "NCCL_IB_GID_INDEX=2 is IB/RoCE v1 on mlx5_0; RoCE v2 are 1, 3"
    empty = want(server={"env": {"NCCL_IB_GID_INDEX": "7"}})
    assert "NCCL_IB_GID_INDEX=7 is empty" in judge_fabric.gid_line(empty, port()).seen
    node_wins = want(
        server={"env": {"NCCL_IB_GID_INDEX": "2"}}, node={"env": {"NCCL_IB_GID_INDEX": "3"}}
    )
    assert state(judge_fabric.gid_line(node_wins, port())) == "ok"


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({}, "there is no RDMA device mlx5_0 (there: none)"),
        ({"mlx5_9": {}}, "(there: mlx5_9)"),
        (port(state="1: DOWN"), "mlx5_0 is not active: port 1 1: DOWN"),
        (port(gids={}), "mlx5_0 port 1 has no RoCE v2 GID"),
        ({"mlx5_0": {"ports": {}}}, "mlx5_0 is not active: no port"),
    ],
)
def test_rdma_that_does_not_work(devices: Any, said: str) -> None:
    line = judge_fabric.gid_line(want(), devices)
    assert state(line) == "FAIL"
    assert said in line.seen


def test_infiniband_needs_no_gid_index() -> None:
    line = judge_fabric.gid_line(want(), port(link_layer="InfiniBand", gids={}))
    assert (state(line), line.seen) == ("ok", "mlx5_0 InfiniBand, 400 Gb/sec")


OPEN = {"nvidia_driver": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570"}
CLOSED = {"nvidia_driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535"}


@pytest.mark.parametrize(
    ("found", "kernel", "expected"),
    [
        ({"modules": ["nvidia_peermem"], "dma_buf": False}, CLOSED, "ok"),
        ({"modules": [], "dma_buf": True}, OPEN, "ok"),
        ({"modules": [], "dma_buf": True}, CLOSED, "warn"),
        ({"modules": [], "dma_buf": False}, OPEN, "warn"),
        ({"modules": [], "dma_buf": None}, {**OPEN, "release": "6.8.0"}, "ok"),
        ({"modules": [], "dma_buf": None}, {**OPEN, "release": "5.4.0"}, "warn"),
        ({"modules": [], "dma_buf": None}, {**OPEN, "release": "odd"}, "warn"),
        ({"modules": [], "dma_buf": True, "amdgpu": True}, {}, "ok"),
    ],
)
def test_peer_memory(found: Any, kernel: Any, expected: str) -> None:
    assert state(judge_fabric.peer_memory_line("n", found, kernel)) == expected


def test_cards() -> None:
    found = {"tool": "nvidia-smi", "count": 8, "errors": []}
    assert state(judge_software.cards_line(want(), found)) == "ok"
    line = judge_software.cards_line(want(), {**found, "count": 7})
    assert (state(line), line.seen) == ("FAIL", "7 by nvidia-smi, 8 in the campaign")
    none = {"tool": None, "count": None, "errors": ["nvidia-smi: no driver"]}
    assert judge_software.cards_line(want(), none).seen == "nvidia-smi: no driver"
    assert state(judge_software.cards_line(want(), {**none, "errors": []})) == "FAIL"


def test_runtime() -> None:
    line = judge_software.runtime_line(
        want(node={"become": True}), {"version": "27", "error": None}
    )
    assert (state(line), line.seen) == ("ok", "27 by sudo -n")
    assert state(judge_software.runtime_line(want(), {"error": "denied"})) == "FAIL"


IMAGE = {"id": "sha256:aaaaaaaaaaaaaaaaaaaa", "digests": ["sha256:d1", "sha256:d2"]}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (None, "ok"),
        (("h", IMAGE), "ok"),
        (("h", {"id": "sha256:b", "digests": ["sha256:d2"]}), "ok"),
        (("h", {"id": "sha256:b", "digests": ["sha256:d3"]}), "FAIL"),
        (("h", {"id": "sha256:b", "digests": []}), "FAIL"),
    ],
)
def test_image_of_two_nodes(reference: Any, expected: str) -> None:
    line = judge_software.image_line("n", "image", Container(image="i:1"), IMAGE, reference)
    assert state(line) == expected
    assert "aaaaaaaaaaaa" in line.seen


@pytest.mark.parametrize(
    ("keys", "expected", "said"),
    [
        ({}, "FAIL", "pull is never"),
        ({"pull": "missing"}, "warn", "pulled at the first start"),
        ({"load": "/i.tar"}, "warn", "loaded from /i.tar"),
        ({"build": Build(repo="/r")}, "warn", "built from /r"),
    ],
)
def test_an_image_that_is_not_there(keys: Any, expected: str, said: str) -> None:
    line = judge_software.image_line("n", "image", Container(image="i", **keys), None, None)
    assert state(line) == expected
    assert said in line.seen


def test_model_of_two_nodes() -> None:
    found = {"files": {"a": 5, "b": 7}, "errors": []}
    assert state(judge_software.model_line("n", "/m", found, None)) == "ok"
    assert state(judge_software.model_line("n", "/m", found, ("h", {"a": 5, "b": 7}))) == "ok"
    line = judge_software.model_line("n", "/m", found, ("h", {"a": 5, "b": 8, "c": 1}))
    assert state(line) == "FAIL"
    assert "b has 7 bytes instead of 8, c is missing" in line.seen
    assert judge_software.different_files({"a": 1}, {}) == ["a is only here"]
    for bad in ({"files": {}, "errors": ["no such file"]}, {"files": {}, "errors": []}):
        assert state(judge_software.model_line("n", "/m", bad, None)) == "FAIL"


def test_a_section_that_could_not_be_read() -> None:
    for found in ({"error": "OSError: x"}, None, []):
        assert state(judged("n", "c", found, lambda _: ok("n", "c", "fine"))) == "?"
    assert judged("n", "c", {}, lambda _: ok("n", "c", "fine")).state == "ok"


def test_the_table_and_its_words() -> None:
    text = table([ok("n1", "ssh", "fine"), Line("n2", "ssh", "FAIL", "refused", "x" * 20)])
    assert [line.split()[:3] for line in text.splitlines()[2:]] == [
        ["n1", "ssh", "ok"],
        ["n2", "ssh", "FAIL"],
    ]
    assert [count_bytes(n) for n in (0, 999, 1500, 3.4e9, 2e12, 5e15)] == [
        "0 B", "999 B", "1.5 kB", "3.4 GB", "2 TB", "5,000 TB",
    ]  # fmt: skip
    assert some("abc", 2) == "a, b and 1 more"
    assert some("ab", 2) == "a, b"
