"""A baseline that a server's `transport` requires stands before its start."""

import json
from typing import Any

from tests.workflow.harness import Project


def require(project: Project, floor_gb_s: float) -> None:
    """Require a floor of the baseline over loopback, which no phase names; one case is left."""
    campaign = project.campaign()
    campaign["server"]["transport"] = {"baselines": [{"id": "loopback", "floor_gb_s": floor_gb_s}]}
    campaign["variants"] = campaign["variants"][:1]
    campaign["phases"] = [{"id": "phase1", "cases": ["prefill"]}]
    project.write_campaign(campaign)


def record(project: Project, path: str) -> dict[str, Any]:
    return dict(json.loads((project.results / path).read_text()))


def test_below_the_floor_every_case_is_not_run_and_above_it_is_measured(fresh: Project) -> None:
    require(fresh, 1e6)
    run = fresh.snakemake()
    assert (run.jobs["baseline"], run.jobs["launch"], run.jobs["case"]) == (1, 1, 1), run.text
    launch = record(fresh, "server/baseline/launch.json")
    assert (launch["status"], launch["boot_id"]) == ("failed", None)
    meta = record(fresh, "cases/baseline/prefill/r1/meta.json")
    assert meta["status"] == "not_run"
    assert meta["reasons"][0].startswith("baseline loopback: the slowest pair: ")
    assert "required: 1e+06 GB/s or more" in meta["reasons"][0]
    assert not (fresh.results / "server/baseline/boots").exists(), "nothing was started"
    assert fresh.servemap("gate", "small").returncode != 0

    require(fresh, 0.001)
    run = fresh.snakemake()
    assert (run.jobs["baseline"], run.jobs["launch"], run.jobs["case"]) == (0, 1, 1), run.text
    assert record(fresh, "cases/baseline/prefill/r1/meta.json")["status"] == "ok"
    checks = record(fresh, "server/baseline/launch.json")["gate"]["checks"]
    assert (checks[0]["name"], checks[0]["ok"]) == ("baseline loopback", True)
    assert fresh.snakemake().nothing
