"""Collectors of a node's own tools, around a real load on the embedded engine, to its tables."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from servemap.analysis.derive import derive_attempt
from servemap.analysis.summary import summarize
from servemap.engines.embedded.tiny_model import install
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.server.launch.stage import launch_variant
from servemap.telemetry.catalogue import catalogue
from tests.e2e.started import begun
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

pytestmark = pytest.mark.e2e

TOOLS = {
    "mpstat": "mpstat",
    "pidstat": "pidstat",
    "sar_network": "sar",
    "numa_processes": "numastat",
    "ethtool": "ethtool",
    "rdma_statistic": "rdma",
    "perf_stat": "perf",
}
BUILT_IN = ("proc", "engine_metrics", "numa", "tcp", "pressure")
OWN: dict[str, Any] = {
    "argv": ["df", "-B1", "--output=source,used,avail"],
    "table": {
        "entity": "disk{Filesystem}",
        "columns": [
            {"column": "Used", "metric": "disk_used", "unit": "bytes"},
            {"column": "Avail", "metric": "disk_free", "unit": "bytes"},
        ],
    },
}


class Measured(NamedTuple):
    """What a case left: its record, its derived figures, its tables by family."""

    meta: dict[str, Any]
    metrics: dict[str, Any]
    folder: Path
    run: Path

    def rows(self, family: str, collector: str) -> list[dict[str, str]]:
        path = self.run / f"tables/case_{family}_summary.csv"
        with path.open(encoding="utf-8", newline="") as handle:
            return [row for row in csv.DictReader(handle) if row["collector"] == collector]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """One case with every collector whose tool can be here, and one of the campaign's own."""
    pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")
    folder = tmp_path_factory.mktemp("collectors")
    install(folder)
    interval = {"numa_processes": {"interval_s": 1.0}, "perf_stat": {"interval_s": 0.5}}
    server = {
        "engine": "llamacpp",
        "port": free_port(),
        "package": {"name": "llamaserve", "root": str(folder / "engine")},
        "settings": {"max_active": 4},
    }
    keys = campaign(
        model={"name": "tiny", "path": str(folder / "tiny.gguf"), "context": 2048,
               "vocab": [300, 1000]},
        server=server,
        variables=[],
        variants=[{"id": "baseline"}],
        cases=[{"id": "c", "isl": 64, "osl": 32, "concurrency": 4, "min_window_s": 5}],
        collectors={**{name: interval.get(name, {}) for name in (*BUILT_IN, *TOOLS)},
                    "own": OWN},
        policy={"stop_grace_s": 5, "calibrate": False},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # A node whose user speaks German: tools are asked in the language of everywhere.
        patch.setenv("LANG", "de_DE.UTF-8")
        patch.setenv("LC_ALL", "de_DE.UTF-8")
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "SERVEMAP_LEASE_DIR"):
            patch.setenv(name, str(folder / name.casefold()))
        context = load_context(keys)
        with begun(context):
            launch_variant(context, "baseline", 1, folder / "launch.json")
            repeat = context.run_dir / "cases/baseline/c/r1"
            meta = run_case(context, Job("baseline", "c", 1, 1), repeat / "meta.json")
        derive_attempt(repeat, {})
        run = context.run_dir.resolve()
        summarize(run, [{"variant": "baseline", "case": "c", "repeat": 1}])
        metrics = json.loads((repeat / "metrics.json").read_text())
        yield Measured(meta, metrics, repeat.resolve(), run)


def record(measured: Measured, name: str) -> dict[str, Any]:
    """The record of a collector that ran to the end and of which no line was skipped."""
    found: dict[str, Any] = measured.meta["collectors"][f"n1/{name}"]
    assert (found["status"], found["error"]) == ("ok", None)
    assert found["samples"] > 0
    skipped = measured.metrics["derive"]["skipped"].get(f"n1/{name}")
    assert skipped is None, skipped
    return found


def check_rows(measured: Measured, name: str) -> dict[str, dict[str, dict[str, str]]]:
    """Check the tables of a collector against its samples; return {metric: {entity: row}}."""
    table = pq.read_table(measured.folder / "telemetry.parquet").to_pylist()
    own = [row for row in table if row["collector"] == name and row["inside"]]
    assert own, "no sample inside the segment"
    found: dict[str, dict[str, dict[str, str]]] = {}
    for family in catalogue()[name].families:
        for row in measured.rows(family, name):
            samples = [
                one for one in own
                if (one["entity"], one["metric"]) == (row["entity"], row["metric"])
            ]  # fmt: skip
            if row["metric"] == "-" or not samples:
                continue
            assert int(row["n"]) == len(samples)
            # A rate tells of the time since the sample before it.
            weights = [1 if one["from_ns"] is None else one["t_ns"] - one["from_ns"]
                       for one in samples]  # fmt: skip
            whole = sum(weight * one["value"] for weight, one in zip(weights, samples, strict=True))
            assert float(row["mean"]) == pytest.approx(whole / sum(weights))
            assert row["state"] == "ok"
            found.setdefault(row["metric"], {})[row["entity"]] = row
    return found


def mean(row: dict[str, str]) -> float:
    return float(row["mean"])


def server_pids(measured: Measured) -> set[str]:
    return {row["entity"] for row in measured.rows("server_processes", "proc")} - {"server"}


def test_the_case_is_measured(measured: Measured) -> None:
    assert measured.meta["status"] == "ok", measured.meta["reasons"]
    assert "simulated" not in measured.meta


def test_mpstat(measured: Measured) -> None:
    need("sysstat")
    record(measured, "mpstat")
    found = check_rows(measured, "mpstat")
    assert "cpuall" in found["cpu_user"]
    cores = {row["entity"] for row in measured.rows("hot_cores", "mpstat")}
    assert cores and cores == {row["entity"] for row in measured.rows("hot_cores", "proc")}
    assert "cpuall" not in cores and "cpu_all" not in cores
    assert 0 < mean(found["cpu_user"]["cpuall"]) <= 100


def test_pidstat(measured: Measured) -> None:
    need("sysstat")
    record(measured, "pidstat")
    found = check_rows(measured, "pidstat")
    assert set(found["proc_user"]) <= server_pids(measured)
    assert sum(map(mean, found["proc_user"].values())) > 0
    assert {row["process"] for row in found["proc_user"].values()} != {"-"}


def test_sar(measured: Measured) -> None:
    need("sysstat")
    record(measured, "sar_network")
    found = check_rows(measured, "sar_network")
    # The load's own answers pass over lo.
    assert mean(found["net_rx"]["lo"]) > 0
    assert set(found["net_rx"]) == set(found["net_util"])


def test_numastat(measured: Measured) -> None:
    need("sysstat")
    record(measured, "numa_processes")
    found = check_rows(measured, "numa_processes")["numa_process_mem"]
    pids = {entity.partition("/")[0] for entity in found}
    assert pids & server_pids(measured)
    assert sum(map(mean, found.values())) > 1 << 20


def test_numa_and_tcp_of_the_kernel(measured: Measured) -> None:
    for name in ("numa", "tcp"):
        record(measured, name)
    numa = check_rows(measured, "numa")
    assert mean(numa["numa_hit"]["node0"]) > 0
    tcp = check_rows(measured, "tcp")
    assert mean(tcp["tcp_sent"]["host"]) > 0
    assert mean(tcp["tcp_retransmits"]["host"]) >= 0


def test_ethtool(measured: Measured) -> None:
    need("sysstat")
    found = measured.meta["collectors"]["n1/ethtool"]
    if found["status"] == "absent":
        pytest.skip(f"no interface of a real device tells statistics here: {found['error']}")
    record(measured, "ethtool")
    rows = check_rows(measured, "ethtool")
    assert all(metric.startswith("eth_") for metric in rows)
    assert not any(metric.startswith("eth_rx0") for metric in rows)


def test_rdma_without_a_device_is_told_and_not_zero(measured: Measured) -> None:
    need("sysstat")
    if list(Path("/sys/class/infiniband").glob("*")):
        record(measured, "rdma_statistic")
        check_rows(measured, "rdma_statistic")
        return
    found = measured.meta["collectors"]["n1/rdma_statistic"]
    assert found["status"] == "failed"
    assert found["error"]
    (row,) = measured.rows("hca_errors", "rdma_statistic")
    assert (row["state"], row["mean"]) == ("failed", "-")


def test_perf(measured: Measured) -> None:
    need("perf")
    record(measured, "perf_stat")
    found = check_rows(measured, "perf_stat")
    assert mean(found["perf_cpu"]["server"]) > 0
    assert mean(found["perf_context_switches"]["server"]) > 0


def test_what_the_campaign_declares(measured: Measured) -> None:
    found = record(measured, "own")
    assert found["table"]["entity"] == "disk{Filesystem}"
    rows = measured.rows("declared", "own")
    assert {row["metric"] for row in rows} == {"disk_used", "disk_free"}
    assert all(row["entity"].startswith("disk") and float(row["mean"]) >= 0 for row in rows)
