"""From a node's own tools to rows: shims replay recorded output under the agent (simulated)."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, agent_argv, wait_for

from servemap.analysis.telemetry import Telemetry, read_telemetry
from servemap.measure.collect import (
    chosen_collectors,
    collector_records,
    collector_spec,
    simulated_mark,
)
from servemap.measure.setup import load_context
from servemap.telemetry.align import Segment
from servemap.telemetry.catalogue import family_of
from servemap.telemetry.collectors import Collector
from tests.fakes import campaign
from tests.parts import need
from tests.plain_align import rows_of
from tests.shims import dcgmi, nvidia_smi, printing


@pytest.fixture
def corpus() -> Path:
    return Path(need("corpus"))


def collected(
    folder: Path, names: tuple[str, ...], rounds: int, per_round: int = 9
) -> dict[str, Any]:
    """Run collectors as a load would until each wrote or ended; return their records."""
    interval = {"interval_s": 0.1}
    chosen = chosen_collectors(
        load_context(campaign(collectors=dict.fromkeys(names, interval))).plan.campaign
    )
    return run_collectors(folder, chosen, folder / "bin", rounds * per_round)


def run_collectors(
    folder: Path, chosen: list[Collector], programs: Path, lines: int = 0
) -> dict[str, Any]:
    """Run collectors until each wrote more than so many lines, or ended; return their records."""
    folder.mkdir(exist_ok=True)
    spec = collector_spec(
        chosen, node="n1", raw=str(folder / "raw"), pids=[], metrics_url=None, log=None,
        heartbeat=str(folder / "heartbeat"), until=None, gone_s=60, max_s=WAIT_S, load_id="x",
    )  # fmt: skip
    (folder / "spec.json").write_text(json.dumps(spec))
    out = Path(spec["out"])

    def enough(name: str) -> bool:
        said = out / f"{name}.jsonl"
        if lines and said.exists() and said.read_text().count("\n") > lines:
            return True
        ends = out / "collect.events.jsonl"
        return ends.exists() and f'"{name}"' in ends.read_text()

    env = {**os.environ, "PATH": f"{programs}:{Path(sys.executable).parent}"}
    with subprocess.Popen(agent_argv("collect", "--spec", str(folder / "spec.json")), env=env) as p:
        try:
            wait_for(lambda: all(enough(one.name) for one in chosen), "lines of every collector")
        finally:
            p.terminate()
            assert p.wait(WAIT_S) == 0
    return collector_records(folder / "raw" / "telemetry", chosen, "n1", "x")


def read(folder: Path, records: dict[str, Any]) -> Telemetry:
    stamps = [
        json.loads(line)["t_ns"]
        for path in (folder / "raw" / "telemetry" / "n1").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    # Times are rebuilt from the monotonic clock, a little beside those that were written.
    whole = Segment("main", min(stamps) - 10**8, max(stamps) + 10**8)
    return read_telemetry(folder / "raw" / "telemetry", [whole], records, {})


def test_recorded_tools_become_rows_by_card(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvidia_smi(tmp_path / "bin", corpus, cards=8)
    dcgmi(tmp_path / "bin", corpus)
    records = collected(tmp_path, ("nvidia_smi", "dcgm"), rounds=3)
    assert {key: (one["status"], one["simulated"]) for key, one in records.items()} == {
        "n1/nvidia_smi": ("ok", True),
        "n1/dcgm": ("ok", True),
    }
    assert simulated_mark(records) == {"simulated": True}
    found = read(tmp_path, records)
    power = [row for row in rows_of(found.series) if row.metric == "gpu_power"]
    assert {row.entity for row in power} == {f"gpu{n}" for n in range(8)}
    assert {(row.value, row.unit, row.inside) for row in power} == {(627.4, "watts", True)}
    times = Counter(row.entity for row in power)
    smi = next(one for one in found.coverages if one.collector == "nvidia_smi")
    assert smi.samples == max(times.values()) >= 3, "eight lines are one sample"
    assert {row.entity for row in rows_of(found.series) if row.metric == "dram_active"} == {
        f"gpu{n}" for n in range(8)
    }
    assert found.skipped == {}


def test_a_driver_with_the_older_names_is_asked_by_them(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvidia_smi(tmp_path / "bin", corpus, older=True)
    records = collected(tmp_path, ("nvidia_smi",), rounds=1)
    assert records["n1/nvidia_smi"]["status"] == "ok"
    found = read(tmp_path, records)
    assert {row.value for row in rows_of(found.series) if row.metric == "gpu_slowed"} == {0.0}
    (said,) = found.skipped["n1/nvidia_smi"]
    assert "clocks_event_reasons.sw_power_cap" in said


def test_a_driver_that_does_not_know_a_field_is_named_by_it(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvidia_smi(tmp_path / "bin", corpus, unknown="power.draw")
    records = collected(tmp_path, ("nvidia_smi",), rounds=0)
    assert records["n1/nvidia_smi"]["status"] == "failed"
    assert 'Field "power.draw" is not a valid field' in records["n1/nvidia_smi"]["error"]
    assert read(tmp_path, records).series == []


def test_a_node_without_tools_says_that_they_are_absent(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    records = collected(tmp_path, ("nvidia_smi", "nvidia_pmon", "dcgm"), rounds=0)
    assert {one["status"] for one in records.values()} == {"absent"}
    assert "no program dcgmi on this node's PATH" in records["n1/dcgm"]["error"]
    assert simulated_mark(records) == {}
    (tmp_path / "raw/telemetry/n1/x.jsonl").write_text('{"t_ns": 1}\n')
    found = read(tmp_path, records)
    assert found.series == []
    assert {one.samples for one in found.coverages if one.collector == "dcgm"} == {0}


AMD_METRIC = [
    {
        "gpu": number,
        "usage": {"gfx_activity": {"value": 60 + number, "unit": "%"}, "umc_activity": "N/A"},
        "power": {"socket_power": {"value": 500, "unit": "W"}},
        "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}},
        "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}},
        "mem_usage": {"used_vram": {"value": 1024, "unit": "MB"}},
        "ecc": {"total_correctable_count": 3},
    }
    for number in range(2)
]

# By collector: the recording, and what its cards say. Of amd-smi no recording of metric is there.
PRINTED: dict[str, tuple[str, str, dict[tuple[str, str], float]]] = {
    "rocm_smi": (
        "rocm-smi",
        "vendor_smi/004_rocm_smi_mi100_rocm602.json",
        {
            ("gpu0", "gpu_util"): 0,
            ("gpu0", "gpu_mem_used"): 6750208,
            ("gpu0", "gpu_mem_total"): 34342961152,
            ("gpu0", "gpu_power"): 36,
            ("gpu0", "gpu_power_limit"): 290,
            ("gpu0", "gpu_temp"): 53,
            ("gpu0", "gpu_hotspot_temp"): 55,
            ("gpu0", "gpu_mem_temp"): 53,
            ("gpu0", "gpu_clock_sm"): 300,
            ("gpu0", "gpu_clock_mem"): 1200,
        },
    ),
    "ixsmi": (
        "ixsmi",
        "vendor_smi/012_ixsmi_bi_v150_2gpu.txt",
        {
            ("gpu0", "gpu_util"): 0,
            ("gpu0", "gpu_mem_used"): 64 << 20,
            ("gpu0", "gpu_temp"): 40,
            ("gpu0", "gpu_clock_sm"): 1500,
            ("gpu1", "gpu_power"): 104,
            ("gpu1", "gpu_power_limit"): 350,
        },
    ),
    "mx_smi": ("mx-smi", "vendor_smi/017_mx_smi_c550.txt", {("gpu0", "gpu_power"): 53}),
    "npu_smi": (
        "npu-smi",
        "vendor_smi/014_npu_smi_ascend910_dualchip.txt",
        {("npu0.0", "gpu_power"): 178.9},
    ),
    "xpu_smi": ("xpu-smi", "vendor_smi/009_xpu_smi_v2_table.txt", {("gpu0", "gpu_power"): 66}),
    "amd_smi": (
        "amd-smi",
        "",
        {
            ("gpu1", "gpu_util"): 61,
            ("gpu0", "gpu_power"): 500,
            ("gpu0", "gpu_hotspot_temp"): 71,
            ("gpu0", "gpu_clock_sm"): 2100,
            ("gpu0", "gpu_mem_used"): 1024 << 20,
            ("gpu0", "gpu_ecc_corrected"): 0,
        },
    ),
}
SILENT = {
    ("ixsmi", "gpu0", "gpu_power"),
    ("npu_smi", "npu0.1", "gpu_power"),
    ("amd_smi", "gpu0", "gpu_temp"),
    ("amd_smi", "gpu0", "gpu_mem_util"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_tools_that_print_once_are_asked_again_and_again(
    tmp_path: Path, corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    (tmp_path / "bin").mkdir()
    tool, file, expected = PRINTED[name]
    own = tmp_path / "metric.json"
    own.write_text(json.dumps({"gpu_data": AMD_METRIC}))
    printing(tmp_path / "bin", tool, corpus / file if file else own)
    records = collected(tmp_path, (name,), rounds=2, per_round=1)
    record = records[f"n1/{name}"]
    assert (record["status"], record["simulated"], record["error"]) == ("ok", True, None)
    found = read(tmp_path, records)
    told = {(row.entity, row.metric): row.value for row in rows_of(found.series)}
    assert {key: told.get(key) for key in expected} == expected
    assert not {(name, *key) for key in told} & SILENT, "what the card does not tell is not 0"
    families = {family_of(name, metric, entity) for entity, metric in told}
    assert families <= {"gpu", "gpu_memory", "power", "clocks"}
    (covered,) = found.coverages
    assert 2 <= covered.samples <= record["samples"]


def test_a_tool_whose_twin_is_there_gives_way_unless_it_is_named(
    tmp_path: Path, corpus: Path
) -> None:
    (tmp_path / "bin").mkdir()
    file = corpus / "vendor_smi/004_rocm_smi_mi100_rocm602.json"
    for tool in ("rocm-smi", "amd-smi"):
        printing(tmp_path / "bin", tool, file)
    records = collected(tmp_path, ("rocm_smi",), rounds=1, per_round=1)
    assert records["n1/rocm_smi"]["status"] == "ok", "a campaign that names it wants it"
    (by_default,) = (c for c in chosen_collectors(load_context(campaign()).plan.campaign)
                     if c.name == "rocm_smi")  # fmt: skip
    records = run_collectors(tmp_path / "again", [by_default], tmp_path / "bin")
    assert records["n1/rocm_smi"]["status"] == "absent"
    assert "amd-smi is on this node" in records["n1/rocm_smi"]["error"]
