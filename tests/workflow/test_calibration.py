"""The client's own error as a stage: when it is measured, and that no case depends on it."""

import json
from collections import Counter

from tests.workflow.harness import Project

TARGET = "results/small/calibration.json"


def append(project: Project, path: str, text: str) -> None:
    file = project.folder / path
    file.write_text(file.read_text() + text)


def test_it_reruns_for_other_streams_other_client_code_and_other_facts(fresh: Project) -> None:
    campaign = fresh.campaign()
    del campaign["policy"]["calibrate"]
    for case in campaign["cases"]:
        case["concurrency"] = 2
    fresh.write_campaign(campaign)
    run = fresh.snakemake(TARGET)
    assert run.jobs == Counter({"freeze": 1, "calibrate": 1}), run.text[-3000:]
    # Whether its point is of use is for the machine to say: a busy one makes the server late.
    assert "calibration on local: " in run.text
    found = json.loads((fresh.folder / TARGET).read_text())
    assert (found["status"], found["node"]) == ("ok", "local")
    (row,) = found["rows"]
    assert (row["concurrency"], row["requests"]) == (2, 8)
    (first,) = (fresh.results / "calibration").iterdir()
    assert (first / "raw/c2/requests.jsonl").stat().st_size > 0

    # A length is no number in flight, and the report's code is not the client's.
    campaign["cases"][0]["isl"] = "9K"
    fresh.write_campaign(campaign)
    append(fresh, "src/servemap/report/run.py", "\n\nX = 1\n")
    append(fresh, "src/servemap/onnode/load_loop.py", "\n\n# a remark\n")
    assert fresh.snakemake(TARGET).nothing

    append(fresh, "src/servemap/onnode/load_loop.py", "\n\nX = 1\n")
    assert fresh.snakemake(TARGET).jobs == Counter({"calibrate": 1})
    plan = fresh.snakemake("-n", "phase1")
    assert "calibrate" not in plan.jobs, "it is there"
    assert plan.jobs["case"] == 2
    assert len(list((fresh.results / "calibration").iterdir())) == 2

    again = fresh.snakemake("-n", "-f", "results/small/freeze/local.json", TARGET)
    assert again.jobs["calibrate"] == 1, again.text[-3000:]
    campaign["cases"][1]["concurrency"] = 3
    fresh.write_campaign(campaign)
    assert fresh.snakemake("-n", TARGET).jobs == Counter({"calibrate": 1})
    # No case has it as an input: what was measured stays.
    assert "calibration" not in (fresh.folder / "workflow/rules/case.smk").read_text()
