"""Nodes of one variant that differ where they should not (card tools: simulated)."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.server.gates.agree import MAX_NAMED, nodes_agree, one_machine
from tests.parts import need

NVIDIA = """
Timestamp                                 : Tue Jul 14 09:00:43 2026
Driver Version                            : 590.48.01
CUDA Version                              : 13.1
Attached GPUs                             : 2
GPU 00000000:00:09.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 165012345
GPU 00000000:00:0a.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 165012346
"""

FACTS: dict[str, Any] = {
    "schema": 1,
    "taken_ns": 1,
    "kernel": {"hostname": "a", "release": "6.1.0", "machine": "x86_64", "boot_id": "x"},
    "cpu": {"model": {"EPYC 9654": 192}, "smt": "on", "topology": {}},
    "memory": {"MemTotal": 5},
    "nics": {
        "interfaces": {"eth0": {"addresses": ["10.0.0.1/24"]}},
        "rdma": {"mlx5_0": {"firmware": "28.41"}, "mlx5_1": {"firmware": "28.41"}},
    },
    "python": {"version": "3.8.1", "packages": {"agent-side": "1"}},
    "engine": {
        "python": {"version": "3.11.7", "packages": {"vllm": "0.9.1", "torch": "2.7.0"}},
        "files": {
            "files": 2,
            "sha256": "f" * 64,
            "errors": [],
            "digests": {"__init__.py": "1" * 12, "model/qwen.py": "2" * 12},
        },
    },
    "accelerators": {
        "found": True,
        "tools": {"nvidia-smi -q": {"argv": [], "code": 0, "stdout": NVIDIA, "stderr": ""}},
    },
    "containers": {"docker": {"running": [{"Id": "1"}]}},
    "models": {
        "models": [
            {
                "path": "/m",
                "errors": [],
                "files": [
                    {"name": "a.safetensors", "size": 5, "mtime_ns": 1, "sha256": "a" * 64},
                    {"name": "b.json", "size": 5, "mtime_ns": 1, "sha256": "b" * 64},
                ],
            }
        ]
    },
    "workflow": {"commit": "c"},
}
PATCHES: dict[str, Any] = {
    "status": "ok",
    "node": "n1",
    "patches": {"fix": {"files": [{"path": "/x.py", "sha256_after": "c" * 64, "mode_after": 420}]}},
}

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def other(change: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    facts, patches = copy.deepcopy(FACTS), copy.deepcopy(PATCHES)
    change(facts, patches)
    return facts, patches


def both(change: Change) -> Any:
    facts, patches = other(change)
    return nodes_agree({"n1": FACTS, "n2": facts}, {"n1": PATCHES, "n2": patches})


def test_equal_nodes() -> None:
    check = both(lambda facts, patches: None)
    assert (check.name, check.ok) == ("nodes_agree", True)
    assert check.evidence.startswith("n1, n2 agree in 1")


def test_what_may_differ() -> None:
    def change(facts: dict[str, Any], patches: dict[str, Any]) -> None:
        facts["taken_ns"] = 2
        facts["kernel"].update(hostname="b", boot_id="y")
        facts["nics"]["interfaces"]["eth0"]["addresses"] = ["10.0.0.2/24"]
        facts["containers"] = {"docker": {"error": "x"}}
        facts["memory"] = {"MemTotal": 6}
        facts["python"] = {"version": "3.12.1", "packages": {}}
        facts["models"]["models"][0]["files"][0]["mtime_ns"] = 2
        tool = facts["accelerators"]["tools"]["nvidia-smi -q"]
        tool["stdout"] = tool["stdout"].replace("1650", "1750").replace(":43", ":44")
        patches["node"] = "n2"

    assert both(change).ok is True


def driver(facts: dict[str, Any], patches: dict[str, Any]) -> None:
    tool = facts["accelerators"]["tools"]["nvidia-smi -q"]
    tool["stdout"] = tool["stdout"].replace("590.48.01", "580.1")


def one_card_of_another_kind(facts: dict[str, Any], patches: dict[str, Any]) -> None:
    tool = facts["accelerators"]["tools"]["nvidia-smi -q"]
    tool["stdout"] = tool["stdout"].replace("H100 80GB HBM3", "H200", 1)


def tool_fails(facts: dict[str, Any], patches: dict[str, Any]) -> None:
    facts["accelerators"]["tools"]["nvidia-smi -q"] = {"argv": [], "code": 9, "stdout": ""}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f, p: f["kernel"].update(release="6.2"), "kernel.release: 6.1.0 (n1), 6.2 (n2)"),
        (
            lambda f, p: f["cpu"].update(model={"EPYC 9554": 128}),
            "cpu.model: 192 x EPYC 9654 (n1), 128 x EPYC 9554 (n2)",
        ),
        (
            lambda f, p: f["engine"]["python"]["packages"].update(vllm="0.9.2"),
            "engine python.packages.vllm: 0.9.1 (n1), 0.9.2 (n2)",
        ),
        (
            lambda f, p: f["engine"]["python"]["packages"].pop("torch"),
            "engine python.packages.torch: 2.7.0 (n1), nothing (n2)",
        ),
        (
            lambda f, p: f["engine"]["python"]["packages"].update(extra="1"),
            "engine python.packages.extra: nothing (n1), 1 (n2)",
        ),
        (
            lambda f, p: f["models"]["models"][0]["files"][1].update(sha256="d" * 64),
            "models./m:b.json: bbbbbbbbbbbb (n1), dddddddddddd (n2)",
        ),
        (
            lambda f, p: f["models"]["models"][0]["files"].pop(),
            "models./m:b.json: bbbbbbbbbbbb (n1), nothing (n2)",
        ),
        (
            lambda f, p: f["nics"]["rdma"]["mlx5_1"].update(firmware="28.39"),
            "nics.rdma.firmware: 2 x 28.41 (n1), 1 x 28.39, 1 x 28.41 (n2)",
        ),
        (
            lambda f, p: p["patches"]["fix"]["files"][0].update(sha256_after="e" * 64),
            "patches.fix./x.py: cccccccccccc, mode 420 (n1), eeeeeeeeeeee, mode 420 (n2)",
        ),
        (
            lambda f, p: p.update(status="failed", reasons=["no target"]),
            "patches: nothing (n1), failed: no target (n2)",
        ),
        (
            lambda f, p: f["engine"]["files"]["digests"].update({"model/qwen.py": "3" * 12}),
            "engine files.model/qwen.py: 222222222222 (n1), 333333333333 (n2)",
        ),
        (
            lambda f, p: f["engine"]["files"]["digests"].update({"new.py": "3" * 12}),
            "engine files.new.py: nothing (n1), 333333333333 (n2)",
        ),
        (
            lambda f, p: f["engine"]["python"].update(version="3.12.1"),
            "engine python.version: 3.11.7 (n1), 3.12.1 (n2)",
        ),
        (driver, "driver version: 1 x 590.48.01 (n1), 1 x 580.1 (n2)"),
        (
            one_card_of_another_kind,
            "product name: 2 x NVIDIA H100 80GB HBM3 (n1), 1 x NVIDIA H100 80GB HBM3, "
            "1 x NVIDIA H200 (n2)",
        ),
        (tool_fails, "accelerators.nvidia-smi -q: answers (n1), fails (n2)"),
    ],
)
def test_what_must_not_differ(change: Change, said: str) -> None:
    check = both(change)
    assert check.ok is False
    assert said in check.evidence
    assert "freeze anew" in check.remedy


def test_an_engine_that_could_not_be_read_is_not_equal() -> None:
    for engine in ({"python": None}, {"python": {"error": "ValueError: no such program"}}):
        check = both(lambda facts, patches, engine=engine: facts.update(engine=engine))
        assert check.ok is not True
        assert "engine python of n2" in check.evidence


def test_one_machine_as_two_nodes() -> None:
    facts, _ = other(lambda facts, patches: facts["kernel"].update(hostname="b"))
    assert one_machine({"n1": FACTS, "n2": facts}) is None, "containers share the kernel's boot"
    facts, _ = other(lambda facts, patches: facts["kernel"].update(boot_id="y"))
    assert one_machine({"n1": FACTS, "n2": facts}) is None, "host names are given twice"
    said = one_machine({"n1": FACTS, "n2": facts, "n3": FACTS})
    assert said == "n1 and n3 are the same machine, a"
    assert one_machine({"n1": None, "n2": {}, "n3": {"kernel": {"error": "no"}}}) is None


def test_only_the_odd_one_of_three_is_named() -> None:
    facts, _ = other(lambda facts, patches: facts["kernel"].update(release="5"))
    nodes = {"n1": FACTS, "n2": facts, "n3": FACTS}
    check = nodes_agree(nodes, dict.fromkeys(nodes, PATCHES))
    assert check.evidence == "kernel.release: 6.1.0 (n1, n3), 5 (n2)"


def test_a_node_without_a_patch_record() -> None:
    check = nodes_agree({"n1": FACTS, "n2": FACTS}, {"n1": PATCHES, "n2": None})
    assert check.ok is False
    assert "patches: nothing (n1), no record (n2)" in check.evidence


def test_what_could_not_be_read_is_not_compared_and_not_equal() -> None:
    check = both(lambda facts, patches: facts.update(cpu={"error": "OSError: no"}))
    assert (check.ok, check.evidence) == (None, "not compared: cpu of n2: OSError: no")
    check = nodes_agree({"n1": FACTS, "n2": None}, {"n1": PATCHES, "n2": PATCHES})
    assert (check.ok, check.evidence) == (None, "not compared: all of n2: no frozen facts")

    def change(facts: dict[str, Any], patches: dict[str, Any]) -> None:
        facts.update(cpu={"error": "no"})
        facts["kernel"].update(release="5")

    check = both(change)
    assert check.ok is False
    assert check.evidence == "kernel.release: 6.1.0 (n1), 5 (n2); cpu of n2: no"


@pytest.mark.parametrize(
    ("section", "odd"),
    [
        ("models", {"models": [3, {"path": "/m", "files": [None], "errors": "x"}]}),
        ("accelerators", {"tools": {"nvidia-smi -q": 3}}),
        ("nics", {"rdma": {"mlx5_0": None}}),
        ("engine", {"python": {"packages": []}}),
    ],
)
def test_a_damaged_record_is_no_traceback(section: str, odd: dict[str, Any]) -> None:
    check = both(lambda facts, patches: facts.update({section: odd}))
    assert check.ok is False
    assert f"{section}{' files' * (section == 'engine')}." in check.evidence


def test_one_node_has_nobody_to_differ_from() -> None:
    assert nodes_agree({"n1": FACTS}, {"n1": PATCHES}).ok is True


def test_the_text_is_bounded() -> None:
    def change(facts: dict[str, Any], patches: dict[str, Any]) -> None:
        facts["kernel"]["release"] = "x" * 10_000
        facts["engine"]["python"]["packages"] = {f"p{index}": "v" * 500 for index in range(5000)}

    check = both(change)
    assert check.evidence.startswith("kernel.release: ")
    assert "more" in check.evidence
    assert len(check.evidence) < MAX_NAMED * 250


def test_recorded_card_tool() -> None:
    text = (Path(need("corpus")) / "nvidia_smi/019_h100_mig_q_text.txt").read_text()

    def change(facts: dict[str, Any], patches: dict[str, Any]) -> None:
        facts["accelerators"]["tools"]["nvidia-smi -q"]["stdout"] = text

    evidence = both(change).evidence
    assert "cuda version" not in evidence, "it is the same"
    assert "attached gpus: 1 x 2 (n1), 1 x 1 (n2)" in evidence


def test_cards_of_amds_by_their_name() -> None:
    said = {"code": 0, "stdout": "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n"}

    def change(facts: dict[str, Any], patches: dict[str, Any]) -> None:
        facts["accelerators"]["tools"]["amd-smi static"] = said

    assert "market_name: nothing (n1), 1 x AMD Instinct MI300X (n2)" in both(change).evidence


LEAF = st.none() | st.integers() | st.sampled_from(["", "a: b", "ok"])
KEYS = st.sampled_from(["files", "errors", "path", "name", "code", "stdout", "a"])
JSON = LEAF | st.lists(LEAF, max_size=2) | st.dictionaries(KEYS, LEAF | st.lists(LEAF), max_size=3)
INNER = JSON | st.lists(JSON, max_size=2) | st.dictionaries(KEYS, JSON, max_size=2)
NAMES = st.sampled_from(["tools", "packages", "models", "rdma", "release", "error"])
SECTIONS = st.dictionaries(
    st.sampled_from(["kernel", "cpu", "accelerators", "engine", "models", "nics"]),
    JSON | st.dictionaries(NAMES, INNER, max_size=3),
    max_size=4,
)
RECORDS = st.none() | st.dictionaries(st.sampled_from(["status", "patches", "reasons"]), INNER)


@given(SECTIONS, RECORDS, SECTIONS, RECORDS)
def test_any_record_is_compared_without_a_traceback(
    first: dict[str, Any], left: Any, second: dict[str, Any], right: Any
) -> None:
    here = nodes_agree({"a": first, "b": second}, {"a": left, "b": right})
    there = nodes_agree({"b": second, "a": first}, {"a": left, "b": right})
    assert here.ok is there.ok, "the order of the nodes does not matter"
    same = nodes_agree({"a": first, "b": first}, {"a": left, "b": left})
    assert same.ok is not False, "a node agrees with itself"
