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
from tests.fakes import campaign
from tests.parts import need
from tests.plain_align import rows_of
from tests.shims import dcgmi, nvidia_smi


@pytest.fixture
def corpus() -> Path:
    return Path(need("corpus"))


def collected(folder: Path, names: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """Run collectors as a load would until each wrote or ended; return their records."""
    interval = {"interval_s": 0.1}
    chosen = chosen_collectors(
        load_context(campaign(collectors=dict.fromkeys(names, interval))).plan.campaign
    )
    spec = collector_spec(
        chosen, node="n1", raw=str(folder / "raw"), pids=[], metrics_url=None,
        heartbeat=str(folder / "heartbeat"), until=None, gone_s=60, max_s=WAIT_S, load_id="x",
    )  # fmt: skip
    (folder / "spec.json").write_text(json.dumps(spec))
    out = Path(spec["out"])

    def enough(name: str) -> bool:
        said = out / f"{name}.jsonl"
        if rounds and said.exists() and said.read_text().count("\n") > 9 * rounds:
            return True
        ends = out / "collect.events.jsonl"
        return ends.exists() and f'"{name}"' in ends.read_text()

    env = {**os.environ, "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}"}
    with subprocess.Popen(agent_argv("collect", "--spec", str(folder / "spec.json")), env=env) as p:
        try:
            wait_for(lambda: all(map(enough, names)), "lines of every collector")
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
