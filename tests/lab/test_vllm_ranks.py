"""vLLM with a rank on each of two machines: the second without a front end, one case, the end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded import tiny_hf
from servemap.engines.profiling import FOLDER
from tests.lab.lab import FILES, Lab
from tests.lab.project import LabProject
from tests.parts import need

pytestmark = pytest.mark.timeout(1200)
CASE: dict[str, Any] = {"id": "c", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 4}
CAPTURES: list[dict[str, Any]] = [
    {"case": "c", "num_steps": 5},
    {"case": "one-rank", "num_steps": 5, "ranks": [1]},
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    need("lab")
    need("vllm")
    tiny_hf.write_folder(tmp_path / "seed" / "tiny")
    with Lab(tmp_path / "seed") as running:
        yield running


def with_vllm(campaign: dict[str, Any]) -> dict[str, Any]:
    """The lab's campaign with TP2 over its two machines, a core for each."""
    for core, node in enumerate(campaign["nodes"]):
        node["env"] = {"VLLM_CPU_OMP_THREADS_BIND": str(core)}
    return {
        **campaign,
        "model": {"name": "tiny", "path": f"{FILES}/tiny", "context": 2048, "vocab": [300, 1000]},
        "server": {
            "engine": "vllm",
            "nodes": ["head", "worker"],
            "bind": campaign["server"]["bind"],
            "port": 18100,
            "python": need("vllm"),
            "topology": {"tp": 2},
            "settings": {"max_active": 4, "cuda_graph": False},
            "args": {"kv-cache-memory-bytes": 134217728, "dtype": "float32"},
            "env": {
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "GLOO_SOCKET_IFNAME": "eth0",
            },
        },
        "cases": [CASE, {**CASE, "id": "one-rank"}],
        "baselines": [],
        "phases": [{"id": "phase1", "cases": ["c"], "captures": CAPTURES}],
        "policy": {"lease_ttl_s": 30, "start_timeout_s": 180, "calibrate": False},
    }


def check_captures(project: LabProject) -> None:
    """One start of its own for both; the traces of all ranks, and of the one that is asked for."""
    records = {}
    for case in ("c", "one-rank"):
        folder = project.results / "captures/baseline" / case
        record = records[case] = json.loads((folder / "capture.json").read_text())
        assert (record["status"], record["reasons"]) == ("ok", [])
        analysis = json.loads((folder / "analysis.json").read_text())
        assert analysis["status"] == "ok", analysis
        traces = [name for name in record["files"] if name.endswith(".trace.json.gz")]
        ranks = [file["file"]["rank"] for file in analysis["files"]]
        expected = ["head", "worker"] if case == "c" else ["worker"]
        assert [name.partition("/")[0] for name in traces] == expected
        assert ranks == [0, 1][-len(expected) :]
    across = json.loads((project.results / "captures/baseline/c/analysis.json").read_text())
    assert across["across"]["matched"] > 0, "the ranks are put on one clock"
    assert {record["server"]["boot_id"] for record in records.values()} == {
        records["c"]["server"]["boot_id"]
    }


def test_a_rank_on_each_machine(lab: Lab, tmp_path: Path) -> None:
    project = LabProject.on(lab, tmp_path / "project")
    try:
        project.write_campaign(with_vllm(project.campaign()))
        run = project.snakemake("--", "phase1", timeout=500)
        assert run.code == 0, run.text[-3000:]
        launch = json.loads((project.results / "server/baseline/launch.json").read_text())
        assert launch["status"] == "ok", launch["reasons"]
        head, worker = launch["ranks"]
        assert "--headless" in worker["argv"]
        assert "--headless" not in head["argv"]
        addresses = [lab.machines[name].address for name in ("head", "worker")]
        assert [rank["env"]["VLLM_HOST_IP"] for rank in (head, worker)] == addresses
        assert launch["gate"]["effective"]["settings"]["tp"] == 2
        assert [len(ranks) for ranks in launch["gate"]["memory"].values()] == [1, 1]
        meta = json.loads((project.results / "cases/baseline/c/r1/meta.json").read_text())
        assert (meta["status"], meta["counts"]["ok"]) == ("ok", 4), meta["reasons"]
        check_captures(project)
        find = ["find", "/home", "/tmp", "-name", FOLDER]
        left = [lab.exec_in(name, find).stdout for name in ("head", "worker")]
        assert left == ["", ""], "no trace stays where it was written"
    finally:
        project.clean_up()
