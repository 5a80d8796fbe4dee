"""Baselines of cards, end to end on shims that replay recorded output: all of it is simulated."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.summary import summarize
from servemap.measure.baseline import run_baseline
from servemap.measure.setup import load_context
from servemap.report.render import build
from servemap.report.run import read_run
from servemap.server.context import Context
from servemap.server.gates.baselines import baseline_checks
from servemap.server.launch.stage import launch_variant
from tests import shims_communication as shims
from tests.fakes import campaign
from tests.parts import need

pytestmark = pytest.mark.e2e
MIB = 1 << 20


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "bin").mkdir()
    return Path(need("corpus"))


def measured(baseline: dict[str, Any], **keys: Any) -> tuple[Context, dict[str, Any]]:
    base = {"id": "b", "programs": str(Path.cwd() / "bin"), **baseline}
    context = load_context(
        campaign(
            baselines=[base], phases=[{"id": "phase1", "baselines": ["b"], "cases": ["c"]}], **keys
        )
    )
    output = context.run_dir / "baselines" / "b.json"
    output.parent.mkdir(parents=True)
    run_baseline(context, "b", 1, output)
    return context, json.loads(output.read_text())


def perf(**keys: Any) -> dict[str, Any]:
    return {"kind": "collective", "tool": "nccl-tests", "python": sys.executable,
            "ranks_per_node": 2, "nodes": "each", "launch": "process",
            "operations": ["all_reduce"], "sizes": ["8M", "16M", "32M", "64M"], **keys}  # fmt: skip


def test_a_recorded_all_reduce_of_two_cards_is_measured_and_marked(corpus: Path) -> None:
    shims.nccl_tests(Path("bin"), corpus, ["all_reduce_perf"], pace=0.001)
    context, record = measured(perf(sweep={"NCCL_CROSS_NIC": [0, 1, 2]}))
    assert record["status"] == "ok", record["reasons"]
    assert record["simulated"] is True
    assert [part["settings"] for part in record["results"]] == [
        {"NCCL_CROSS_NIC": str(value)} for value in (0, 1, 2)
    ]
    part = record["results"][0]
    row = next(row for row in part["rows"] if row["size_bytes"] == 64 * MIB)
    assert (row["busbw_bytes_per_s"], row["wrong"]) == (171.36e9, 0)
    assert (row["algorithm"], row["protocol"], row["channels"]) == ("RING", "SIMPLE", 24)
    assert (part["backend"], part["versions"]) == ("nccl", {"nccl": "2.27.7+cuda13.0"})
    assert [rank["bus_id"] for rank in part["ranks"]] == ["0000:17:00", "0000:65:00"]
    assert {path["path"] for path in part["transport"]["paths"]} == {"P2P/direct pointer"}
    assert part["commands"][0]["env"]["NCCL_CROSS_NIC"] == "0"
    assert (context.run_dir / "baselines/raw/b/001/raw/01-n1.log").is_file()
    document = build(read_run(context.run_dir, []), partial=False)
    assert any("baseline b" in banner for banner in document.banners)
    ranks = next(one for one in document.sections if one[0] == "communication").tables[0]
    assert [[cell.text for cell in row[1:5]] for row in ranks.rows] == [
        ["n1", "0", "0", "0000:17:00"], ["n1", "1", "1", "0000:65:00"],
    ]  # fmt: skip
    assert {row[0].note for row in ranks.rows} == {"simulated"}


def test_two_nodes_over_mpirun_are_judged_and_put_beside_their_rails(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims.perf(Path("bin"), "all_reduce_perf", corpus / shims.TWO_NODES, pace=0)
    shims.mpirun(Path("bin"))
    path = f"{Path.cwd() / 'bin'}:{sys.exec_prefix}/bin:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    nodes = [{"id": "n1"}, {"id": "n2", "role": "worker", "address": "127.0.0.2"}]
    context, record = measured(perf(launch="mpirun", nodes="all", ranks_per_node=8), nodes=nodes)
    assert record["status"] == "ok", record["reasons"]
    (part,) = record["results"]
    argv = json.loads(part["commands"][0]["argv"][-1])["runs"][0]["argv"]
    assert argv[:10] == ["mpirun", "--bind-to", "none", "-np", "16", "--map-by", "slot",
                         "--host", "127.0.0.1:8,127.0.0.2:8", "-x"]  # fmt: skip
    row = next(row for row in part["rows"] if row["size_bytes"] == 64 * MIB)
    assert row["busbw_bytes_per_s"] == 23.71e9
    assert [rank["node"] for rank in part["ranks"]] == ["n1"] * 8 + ["n2"] * 8
    between = [path for path in part["transport"]["paths"] if path["scope"] == "inter_node"]
    assert {(p["node"], p["path"]) for p in between} == {
        ("n1", "NET/AWS Libfabric"), ("n2", "NET/AWS Libfabric"),
    }  # fmt: skip
    server = context.server("baseline").model_validate(
        {"engine": "vllm", "transport": {"inter": "NET/IB", "baselines": [{"id": "b"}]}}
    )
    (check,) = baseline_checks(server, {"b": record})
    assert check.ok is False
    assert "simulated: n1, n2: n1: " in check.evidence and "required: NET/IB" in check.evidence
    fitting = {"inter": "NET/AWS Libfabric", "intra": "P2P/IPC", "gdr": True}
    server = context.server("baseline").model_validate(
        {"engine": "vllm", "transport": {**fitting, "baselines": [{"id": "b"}]}}
    )
    (check,) = baseline_checks(server, {"b": record})
    assert check.ok is True, check.evidence
    summarize(context.run_dir, [])
    table = (context.run_dir / "tables/baseline_limits.csv").read_text().splitlines()
    assert table[1].startswith("b,,n1 n2,all_reduce,")
    assert "n1: NCCL's log has no name for network device 0, 1, 2, 3" in table[1]


def test_a_program_that_is_missing_is_named_with_the_remedy(corpus: Path) -> None:
    _, record = measured(perf())
    assert record["status"] == "failed"
    (reason,) = record["reasons"]
    assert "n1 has no program" in reason and "all_reduce_perf: build nccl-tests there" in reason


def test_an_interpreter_that_is_missing_is_named(corpus: Path) -> None:
    _, record = measured(perf(python="/nowhere/python"))
    assert "/nowhere/python" in record["reasons"][0] and "did not run" in record["reasons"][0]


def test_copies_that_fail_are_told_with_their_last_words(corpus: Path) -> None:
    program = Path("bin/nvbandwidth")
    program.write_text("#!/bin/sh\necho CUDA error 999; exit 3\n")
    program.chmod(0o755)
    _, record = measured({"kind": "copies"})
    assert record["status"] == "failed"
    assert "nvbandwidth exited with 3: CUDA error 999" in record["reasons"][0]


def test_a_program_that_fails_is_told_with_its_last_words(corpus: Path) -> None:
    log = Path("failed.log")
    log.write_text("hello\nnode1: Test NCCL failure all_reduce.cu:44 'unhandled system error'\n")
    shims.perf(Path("bin"), "all_reduce_perf", log.resolve(), pace=0, code=3)
    _, record = measured(perf())
    assert record["status"] == "failed"
    assert "all_reduce: it exited with 3: node1: Test NCCL failure" in record["reasons"][0]
    assert record["results"][0]["rows"] == []


def test_ranks_that_did_not_find_each_other_fail(corpus: Path) -> None:
    shims.nccl_tests(Path("bin"), corpus, ["all_reduce_perf"], pace=0)
    _, record = measured(perf(ranks_per_node=4))
    assert "it ran with 2 ranks, asked for: 4" in record["reasons"][0]


@pytest.mark.parametrize(
    ("program", "file", "least", "pairs"),
    [
        ("nvbandwidth", "p2p_bandwidth/004_nvbandwidth_readme_d2d_write.txt", 274.89e9, 56),
        ("p2pBandwidthLatencyTest", "p2p_bandwidth/003_p2p_4gpu_nvlink_v100ish.txt", 48.34e9, 12),
    ],
)
def test_copies_between_all_pairs(
    corpus: Path, program: str, file: str, least: float, pairs: int
) -> None:
    shims.copies(Path("bin"), program, corpus / file)
    context, record = measured({"kind": "copies"})
    assert (record["status"], record["simulated"]) == ("ok", True), record["reasons"]
    (part,) = record["results"]
    assert part["program"] == program
    assert (context.run_dir / "baselines/raw/b/001" / part["files"][0]).is_file()
    rates = [pair["bandwidth_bytes_per_s"] for pair in part["pairs"]]
    assert (len(rates), min(rates)) == (pairs, least)
    document = build(read_run(context.run_dir, []), partial=False)
    table = next(one for one in document.sections if one[0] == "communication").tables[0]
    assert table.rows[0][0].note == "simulated"
    assert {row[7].text for row in table.rows} == {"none"}


def test_no_program_for_copies_is_told_with_the_remedy(corpus: Path) -> None:
    _, record = measured({"kind": "copies"})
    assert record["status"] == "failed"
    assert "build nvbandwidth there" in record["reasons"][0]


def test_below_the_floor_no_server_is_started(corpus: Path) -> None:
    shims.nccl_tests(Path("bin"), corpus, ["all_reduce_perf"], pace=0)
    floor = {"id": "b", "operation": "all_reduce", "size": "64M", "floor_gb_s": 200}
    server = {"engine": "llamacpp", "port": 18999, "transport": {"baselines": [floor]}}
    context, _ = measured(perf(), server=server)
    output = Path("launch.json")
    launch_variant(context, "baseline", 1, output)
    record = json.loads(output.read_text())
    assert record["status"] == "failed" and not record["argv"]
    assert record["reasons"][0].startswith(
        "baseline b: simulated: busbw of all_reduce at 64M: 171.4 GB/s (n1), required: 200 GB/s"
    )
    assert "nvidia-smi topo -m" in record["reasons"][0]
    (check,) = record["gate"]["checks"]
    assert (check["name"], check["ok"]) == ("baseline b", False)
