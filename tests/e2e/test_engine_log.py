"""The throughput lines of a real vLLM's log, beside a load, as telemetry."""

import json
from pathlib import Path

import pytest

from servemap.analysis.derive import derive_attempt
from servemap.analysis.store import read_table
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.server.launch.ensure import ensure_server
from tests.e2e.vllm_here import begun, project, vllm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# vLLM writes a line each 10 s.
CASE = {"id": "long", "isl": 64, "osl": 400, "concurrency": 2, "min_window_s": 24}


def test_lines_of_vllms_log_become_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("log")
    with project(base, "p") as (model, temporary):
        context = vllm(model, cases=[CASE], policy={"calibrate": False})
        folder = context.run_dir / "cases/baseline/long/r1"
        with begun(context, temporary):
            ensure_server(context, "baseline")
            meta = run_case(context, Job("baseline", "long", 1, 1), folder / "meta.json")
        assert meta["status"] == "ok", meta["reasons"]
        record = meta["collectors"]["n1/engine_log"]
        assert (record["status"], record["error"]) == ("ok", None)
        assert record["samples"] >= 2
        derive_attempt(folder, {})
        metrics = json.loads((folder / "metrics.json").read_text())
        assert "n1/engine_log" not in metrics["derive"]["skipped"]
        table = read_table(folder / "telemetry.parquet", 1)
        assert table is not None
        rows = [row for row in table.to_pylist() if row["collector"] == "engine_log"]
        running = [row["value"] for row in rows if row["metric"] == "log_running"]
        assert 2 in running
        said = [row["value"] for row in rows if row["metric"] == "log_generation_throughput"]
        assert max(said) > 0
        raw = Path(folder, "attempts/001/raw/telemetry/n1/engine_log.jsonl").read_text()
        assert all("throughput" in json.loads(line)["line"] for line in raw.splitlines())
