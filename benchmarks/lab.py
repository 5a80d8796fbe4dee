"""What a case costs on two machines over ssh above what it costs on this one; needs root.

The same cases run once on a `local` node and once on the lab's two nodes with a rank and collectors
on each, in turns. A case's overhead is the time from the first case's start to the last one's end,
less windows and warm-ups, divided by the cases: fixed costs of a call are not in it.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import overhead
from tests.lab.lab import FILES, Lab
from tests.lab.project import LabProject, campaign, make_seed
from tests.workflow.harness import free_port

CASES = 8
TURNS = 2
LIMIT_S = 2.5
AGENT_LIMIT = 0.01


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures; `folder` is a temporary one."""
    load = [os.getloadavg()[0]]
    seed = make_seed(folder / "seed")
    found: dict[str, list[dict[str, float]]] = {"local": [], "lab": []}
    with Lab(seed) as lab:
        for turn in range(TURNS):
            for name in found:
                project = LabProject.on(lab, folder / f"{name}-{turn}")
                given = short(lab) if name == "lab" else on_this_machine(lab, seed)
                project.write_campaign(given)
                found[name].append(run(project))
                load.append(os.getloadavg()[0])
    medians = {
        name: statistics.median(one["overhead_s"] for one in runs) for name, runs in found.items()
    }
    return {
        "cases": CASES,
        "turns": found,
        "overhead_per_case_s": {name: round(value, 3) for name, value in medians.items()},
        "above_local_s": round(medians["lab"] - medians["local"], 3),
        "agent_cpu_share": round(max(one["agent_cpu_share"] for one in found["lab"]), 5),
        "load_average": [round(value, 2) for value in load],
    }


def short(lab: Lab) -> dict[str, Any]:
    """The lab's campaign with equal short cases and nothing beside them."""
    names = [f"case-{number}" for number in range(CASES)]
    shape = {"isl": "1K", "osl": "1K", "concurrency": 2, "min_window_s": 4}
    whole = campaign(lab)
    return {
        **whole,
        "policy": {**whole["policy"], "calibrate": False},
        "cases": [{"id": name, **shape} for name in names],
        "baselines": [],
        "phases": [{"id": "phase1", "cases": names}],
    }


def on_this_machine(lab: Lab, seed: Path) -> dict[str, Any]:
    """The same with its server on the machine that the controller runs on."""
    given = short(lab)
    text = json.dumps({"server": given["server"], "model": given["model"]})
    own = json.loads(text.replace(FILES, str(seed)))
    own["server"] |= {"nodes": [], "bind": "127.0.0.1", "port": free_port()}
    own["server"]["python"] = f"{sys.prefix}/bin/python"
    return {**given, **own, "nodes": [{"id": "here"}]}


def run(project: LabProject) -> dict[str, float]:
    """Run a campaign to its end and return what each case cost beside its window."""
    since = time.time()
    project.start("phase1")
    code = project.wait(timeout=600)
    if code != 0:
        raise RuntimeError(f"snakemake ended with {code}: {project.log()[-3000:]}")
    total = overhead.spans(project.results, since)
    events = [json.loads(line) for line in (project.results / "events.jsonl").open()]
    begun = min(event["t_ns"] for event in events if event["event"] == "case_start")
    ended = max(event["t_ns"] for event in events if event["event"] == "case_end")
    spent = (ended - begun) / 1e9 - total["windows"] - total["warm_ups"]
    shares = [
        record["self"]["cpu_s"] / record["self"]["wall_s"]
        for path in project.results.glob("cases/*/*/r*/attempts/*/raw/telemetry/*/collectors.json")
        if (record := json.loads(path.read_text()))
    ]
    return {
        "overhead_s": round(spent / total["repeats"], 3),
        "repeats": total["repeats"],
        "agent_cpu_share": max(shares),
    }


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the limits that the figures break."""
    found = []
    if figures["above_local_s"] > LIMIT_S:
        found.append(f"lab: a case costs {figures['above_local_s']} s above local, limit {LIMIT_S}")
    if figures["agent_cpu_share"] > AGENT_LIMIT:
        found.append(f"agent: {figures['agent_cpu_share']} of a core, limit {AGENT_LIMIT}")
    return found
