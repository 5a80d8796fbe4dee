"""One machine's link is slower than the other's: the baseline's report and gate name it."""

import json
import shutil

import pytest

from tests.lab.lab import Lab
from tests.lab.project import LabProject


def test_the_link_that_is_slower_than_the_other_is_named(lab: Lab, project: LabProject) -> None:
    if shutil.which("tc") is None:
        pytest.skip("there is no tc (package iproute2)")
    lab.shape("1gbit")
    # A tenth: a machine that stalls makes the other one slow too, but not as slow.
    lab.shape("100mbit", "worker")
    run = project.snakemake("--", "phase0", timeout=300)
    assert run.code == 0, run.text[-3000:]
    record = json.loads((project.results / "baselines/network.json").read_text())
    rates = {(r["from"], r["to"]): r["bandwidth_bytes_per_s"] for r in record["results"]}
    print(rates)
    assert rates["head", "worker"] < 13e6 < rates["worker", "head"]

    made = project.servemap("report", "lab")
    assert made.returncode == 0, made.stderr
    report = (project.results / "report.md").read_text()
    (line,) = [line for line in report.splitlines() if "receives, is slow" in line]
    assert [cell.strip() for cell in line.split("|")][1:3] == ["network", "head to worker"]
    _, named, other = (project.results / "tables/baseline_spread.csv").read_text().splitlines()
    assert named.startswith("network,pair,,TCP bandwidth,head to worker,")
    assert (named.split(",")[-2], other.split(",")[-2]) == ("False", "True")
    gate = project.servemap("gate", "lab")
    assert "does not fail the gate: baseline network: head to worker is slower" in gate.stdout
