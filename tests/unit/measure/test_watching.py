"""One case without collectors, with them, and with faster ones: what runs and what is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.derive import derive_attempt
from servemap.measure import case as measuring
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.report.render import render
from servemap.server.context import Context
from servemap.server.launch.served import Served
from tests.fakes import campaign
from tests.reference import reference_server

# Timing on a busy machine is not what is tested here.
LIMITS = {"client_lag_ms": 60_000.0, "client_cpu_share": 10.0, "collector_coverage": 0.01,
          "foreign_cpu_share": 1.0, "concurrency_deviation": 1.0}  # fmt: skip
CASE = {"id": "d", "isl": 16, "osl": 4, "concurrency": 2, "num_prompts": 6, "warmup": "none",
        "watching": "compare", "repeats": 2}  # fmt: skip
SCRIPT = {"model": "tiny", "answer": {"ttft_ms": 20, "gap_ms": [100]}}


def context_of(url: str, **keys: Any) -> Context:
    return load_context(
        campaign(
            server={"engine": "llamacpp", "attach": url},
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[{**CASE, **keys}],
            phases=[{"id": "phase1", "cases": [keys.get("id", "d")]}],
            collectors={"proc": {}},
            limits=LIMITS,
        )
    )


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Every repeat of the three cases, measured and derived."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with reference_server(tmp_path / "server", SCRIPT) as (url, _):
        served = Served(url, "f", None, "llamacpp", "reference", {}, True)
        monkeypatch.setattr(measuring, "ensure_server", lambda *_: served)
        context = context_of(url)
        context.run_dir.mkdir(parents=True)
        (context.run_dir / ".session.json").write_text(json.dumps({"session": "s1"}))
        (context.run_dir / "run_manifest.json").write_text(
            json.dumps({"schema": 1, "campaign": context.plan.campaign.model_dump(mode="json")})
        )
        for row in context.plan.rows():
            folder = context.run_dir / f"cases/baseline/{row['case']}/r{row['repeat']}"
            job = Job("baseline", row["case"], row["repeat"], 1)
            run_case(context, job, folder / "meta.json")
            derive_attempt(folder, {"limits": LIMITS})
        return context


def records(context: Context, case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = context.run_dir / f"cases/baseline/{case}/r1"
    return tuple(json.loads((folder / f"{name}.json").read_text()) for name in ("meta", "metrics"))


def test_each_is_measured_and_the_report_says_what_watching_cost(measured: Context) -> None:
    meta, metrics = records(measured, "d-unwatched")
    assert (meta["collectors"], metrics["verdict"]) == ({}, "valid"), metrics["reasons"]
    assert metrics["coverage"] == []
    check = next(c for c in metrics["checks"] if c["name"] == "collectors")
    assert check["ok"] is None and "by plan" in check["note"]
    intervals = {
        case: records(measured, case)[0]["collectors"]["n1/proc"]["interval_s"]
        for case in ("d-watched", "d-10hz")
    }
    assert intervals == {"d-watched": 0.5, "d-10hz": 0.1}
    samples = [records(measured, c)[0]["collectors"]["n1/proc"]["samples"] for c in intervals]
    assert samples[0] < samples[1]
    render(measured.run_dir, measured.plan.rows())
    report = (measured.run_dir / "report.md").read_text()
    section = report[report.index("## Cost of watching") :].partition("\n## ")[0]
    rows = [
        line
        for line in section.splitlines()
        if line.split("|")[1:2] and line.split("|")[1].strip() == "d"
    ]
    assert len(rows) == 2 and "collectors at 10 Hz" in rows[1]
    assert all("2, 2" in row and "%" in row and "floor" in row for row in rows)


def test_a_case_that_is_watched_as_usual_keeps_its_spec() -> None:
    usual = context_of("http://127.0.0.1:9", watching="usual").plan
    assert "watching" not in usual.spec("case", "baseline", "d")
    assert "10hz" in context_of("http://127.0.0.1:9").plan.spec("case", "baseline", "d-10hz")


def test_a_phase_may_name_one_of_the_three_and_a_long_id_is_refused() -> None:
    plan = context_of("http://127.0.0.1:9").plan
    assert list(plan.cases) == ["d-unwatched", "d-watched", "d-10hz"]
    with pytest.raises(ConfigError, match="longer than 64"):
        context_of("http://127.0.0.1:9", id="d" * 60)
