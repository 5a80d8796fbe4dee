"""Campaign files through Snakemake: refused in words before anything starts, planned exactly."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.model.checks import RESERVED_NAMES
from tests.workflow.harness import ROOT, Project

CAMPAIGNS = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "config/campaigns").glob("*.yaml")
)


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.create(tmp_path_factory.mktemp("planner") / "project", 1)


def dry(project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", *args],
        cwd=project.folder,
        env=project.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(unknown=1), ["unknown", "remove the key"]),
        (lambda c: c["cases"].append(dict(c["cases"][0])), ["prefill", "an id of its own"]),
        (lambda c: c["cases"][0].update(isl="900K"), ["cases.prefill.isl", "context"]),
        (lambda c: c["phases"][1].update(cases=["nope"]), ["'nope'", "phases.phase1.cases"]),
        (lambda c: c["phases"][1].update(id="report"), ["name of a rule"]),
        (
            lambda c: c["variants"][1]["set"].update({"args.n_threads": 2}),
            ["more than its variable", "one variable at a time"],
        ),
        (lambda c: c.update(collectors={"nope": {}}), ["no collector 'nope'"]),
        (lambda c: c["nodes"][0].update(role="worker"), ["role head"]),
    ],
)
def test_a_wrong_campaign_is_refused_in_words(
    planner: Project, change: Any, said: list[str]
) -> None:
    campaign = planner.campaign()
    change(campaign)
    path = planner.folder / "wrong.yaml"
    path.write_text(yaml.safe_dump(campaign))
    done = dry(planner, "--configfile", "wrong.yaml")
    assert done.returncode != 0
    for part in [*said, "remedy:"]:
        assert part in done.stdout
    assert "Traceback" not in done.stdout
    assert not (planner.folder / "results").exists()


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_example_campaigns_plan_without_their_machines(planner: Project, campaign: str) -> None:
    done = dry(planner, "--configfile", campaign)
    assert done.returncode == 0, done.stdout[-2000:]
    for name in ("results/demo/", "small-prefill-batch"):
        assert name not in done.stdout, "the demo must not leak into another campaign"
    assert not (planner.folder / "results").exists()


def test_an_overlay_without_a_run_is_refused_and_is_not_the_demo(planner: Project) -> None:
    (planner.folder / "overlay.yaml").write_text("extends: campaign.yaml\ntitle: other\n")
    done = dry(planner, "--configfile", "overlay.yaml")
    assert done.returncode != 0
    assert "'campaign.yaml' has no name of its own" in done.stdout
    assert "remedy: name the run" in done.stdout


def test_profile_cluster_is_found_as_typed(planner: Project) -> None:
    done = dry(planner, "--profile", "cluster", "phase1")
    assert done.returncode == 0, done.stdout[-2000:]
    run = yaml.safe_load((ROOT / "config/cluster.yaml").read_text())["run"]
    assert f"results/{run}/" in done.stdout


def test_reserved_names_are_the_rules(planner: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--list-rules", "--configfile", "campaign.yaml"],
        cwd=planner.folder, env=planner.env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    rules = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert rules - {"phase0", "phase1", "phase2"} == set(RESERVED_NAMES)


def test_lint_is_clean(planner: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint", "--configfile", "campaign.yaml"],
        cwd=planner.folder, env=planner.env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_plan_says_what_a_phase_would_do(done: Project) -> None:
    campaign = done.campaign()
    campaign["cases"][0]["isl"] = "9K"
    done.write_campaign(campaign)
    said = done.servemap("plan", "phase1", "--configfile", "campaign.yaml").stdout
    assert said.count("changed, is measured again") == 2
    assert "2 to measure with 2 server starts" in said
    assert "decode" not in said
    run = done.snakemake("-n", "--", "phase1")
    assert run.jobs["case"] == 2, "the dry run is exact"


def test_a_milestone_fails_its_phases_target_and_measures_nothing_again(done: Project) -> None:
    """Whatever two repeats differ by is too much first, and then within the limit."""
    campaign = done.campaign()
    rule = {"repeats": 2, "cv": 1e-9}
    campaign["phases"] += [
        {"id": "phase3", "cases": ["decode"], "variants": ["baseline"], "milestone": rule},
        {"id": "phase4", "requires": ["phase3"], "cases": ["prefill"]},
    ]
    done.write_campaign(campaign)
    run = done.snakemake("--", "phase4")
    assert run.code != 0
    assert "milestone phase3: baseline/decode: CV of agg_output_tps" in run.text
    assert run.jobs.keys() == set(), "no job but the targets"
    record = json.loads((done.results / "milestones/phase3.json").read_text())
    assert (record["passed"], record["cases"][0]["n"]) == (False, 2)
    rule["cv"] = 1
    done.write_campaign(campaign)
    assert done.snakemake("--", "phase3").code == 0
    assert json.loads((done.results / "milestones/phase3.json").read_text())["passed"]


def test_frozen_facts_that_drift(done: Project) -> None:
    """The model file is another one: refused by name, or measured and marked."""
    model = done.folder / ".demo/tiny.gguf"
    model.write_bytes(model.read_bytes() + b"\0")
    target = "results/small/cases/baseline/prefill/r1/meta.json"
    meta = done.results / "cases/baseline/prefill/r1/meta.json"
    assert done.snakemake("-f", target).code == 0
    record = json.loads(meta.read_text())
    assert (record["status"], record["cause"]) == ("not_run", "drift")
    assert "tiny.gguf" in record["reasons"][0]
    campaign = done.campaign()
    campaign["policy"]["on_drift"] = "mark"
    done.write_campaign(campaign)
    assert done.snakemake("-f", target).code == 0
    record = json.loads(meta.read_text())
    assert record["status"] == "ok"
    assert any("tiny.gguf" in text for text in record["server"]["drift"])


def test_no_secret_in_any_file(fresh: Project) -> None:
    campaign = fresh.campaign()
    campaign["server"]["env"] = {"API_TOKEN": {"secret": "SERVEMAP_TEST_SECRET"}}
    campaign["variants"] = campaign["variants"][:1]
    fresh.write_campaign(campaign)
    value = "s3cr3t-value-that-must-not-be-written"
    run = fresh.snakemake("--", "phase1", SERVEMAP_TEST_SECRET=value)
    assert run.code == 0, run.text[-3000:]
    assert value not in run.text
    for folder in (fresh.folder, fresh.state):
        for path in Path(folder).rglob("*"):
            if path.is_file():
                assert value.encode() not in path.read_bytes(), path
    run = fresh.snakemake("-f", "results/small/cases/baseline/prefill/r1/meta.json")
    record = json.loads((fresh.results / "cases/baseline/prefill/r1/meta.json").read_text())
    assert record["status"] != "ok"
    assert "SERVEMAP_TEST_SECRET" in record["reasons"][0]


def test_the_server_gets_the_users_environment_whatever_cores_snakemake_has(
    fresh: Project,
) -> None:
    """Snakemake sets thread variables for its jobs; a measured server must not depend on them."""
    campaign = fresh.campaign()
    campaign["cases"][0]["min_window_s"] = 300
    fresh.write_campaign(campaign)
    fresh.start("--", "phase1", MKL_NUM_THREADS="7")
    fresh.wait_for("cases/baseline/prefill/r1/attempts/001/raw/load.json")
    (pid,) = fresh.server_pids()
    variables = dict(
        item.split("=", 1)
        for item in Path(f"/proc/{pid}/environ").read_text().split("\0")
        if "=" in item
    )
    assert variables["MKL_NUM_THREADS"] == "7"
    expected = os.environ.get("OMP_NUM_THREADS")
    assert variables.get("OMP_NUM_THREADS") == expected
