"""Planning: a dry run of a campaign of 1,000 cases against a bare Snakefile of as many jobs."""

import re
import statistics
from pathlib import Path
from typing import Any

import yaml

from benchmarks.sandbox import Call, snakemake, workflow_copy

REPETITIONS = 5
LIMIT = 1.5

BARE = """\
CASES = [f"c{{i}}" for i in range({cases})]

rule all:
    input: "out/report"

rule freeze:
    output: "out/freeze"
    shell: "touch {{output}}"

rule patch:
    input: "out/freeze"
    output: "out/patch"
    shell: "touch {{output}}"

rule launch:
    input: "out/patch"
    output: "out/launch"
    shell: "touch {{output}}"

rule case:
    input: "out/launch"
    output: "out/cases/{{case}}/meta"
    shell: "touch {{output}}"

rule derive:
    input: "out/cases/{{case}}/meta"
    output: "out/cases/{{case}}/metrics"
    shell: "touch {{output}}"

rule snapshot:
    input: expand("out/cases/{{case}}/meta", case=CASES)
    output: "out/snapshot"
    shell: "touch {{output}}"

rule summary:
    input: expand("out/cases/{{case}}/{{name}}", case=CASES, name=["meta", "metrics"])
    output: "out/summary"
    shell: "touch {{output}}"

rule report:
    input: "out/summary", "out/snapshot"
    output: "out/report"
    shell: "touch {{output}}"
"""
"""Trivial rules in the shape of ours: one job for each of our jobs, no directive but the needed."""

DIRECTIVES = """\
    log: "out/logs/{rule}/{{case}}.log"
    priority: {priority}
    conda: "environment.yaml"
    resources: server=1
    params: spec=text, other=number
    script: "script.py"
"""
SAME_OUTPUTS = (
    '"out/cases/{case}/metrics", "out/cases/{case}/requests", "out/cases/{case}/telemetry"'
)


def campaign(cases: int) -> dict[str, Any]:
    """Return a campaign of one variant, one phase and as many cases as asked for."""
    names = [f"isl{16 * (1 + number % 20)}_c{number}" for number in range(cases)]
    return {
        "run": "many",
        "nodes": [{"id": "local", "role": "head", "transport": "local", "address": "127.0.0.1"}],
        "model": {"name": "tiny", "path": ".demo/tiny.gguf", "context": 8192, "vocab": [300, 1000]},
        "server": {
            "engine": "llamacpp",
            "port": 18080,
            "package": {"name": "llamaserve", "root": ".demo/engine"},
        },
        "variants": [{"id": "baseline"}],
        "cases": [
            {"id": name, "isl": 16 * (1 + number % 20), "osl": 16, "concurrency": 1 + number % 8}
            for number, name in enumerate(names)
        ],
        "phases": [{"id": "phase1", "cases": names}],
    }


def dressed(bare: str) -> str:
    """Return the bare Snakefile with the directives that our case and derive rules declare."""
    for rule, priority in (("case", "number"), ("derive", "7")):
        head, tail = bare.split(f"rule {rule}:")
        body = DIRECTIVES.format(rule=rule, priority=priority)
        bare = f"{head}rule {rule}:" + tail.replace('    shell: "touch {output}"\n', body, 1)
    bare = bare.replace('output: "out/cases/{case}/metrics"', f"output: {SAME_OUTPUTS}")
    return f"def text(wildcards): return 'x'\n\ndef number(wildcards): return 1\n\n{bare}"


def jobs(text: str) -> int:
    """Return the number of jobs in a dry run's table."""
    found = re.findall(r"^total +(\d+)$", text, flags=re.MULTILINE)
    return int(found[-1])


def write_bare(folder: Path, cases: int, *, directives: bool = False) -> Path:
    """Make a folder with the bare Snakefile, or with the one that has our directives."""
    folder.mkdir(parents=True)
    bare = BARE.format(cases=cases)
    (folder / "Snakefile").write_text(dressed(bare) if directives else bare)
    (folder / "script.py").write_text('"""Does nothing."""\n')
    (folder / "environment.yaml").write_text("channels: [conda-forge]\n")
    return folder


def write_ours(folder: Path, cases: int) -> Path:
    """Make a copy of the workflow with a campaign of as many cases."""
    workflow_copy(folder)
    (folder / "many.yaml").write_text(yaml.safe_dump(campaign(cases), sort_keys=False))
    return folder


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures of planning: 1,000 cases as ratios, 5,000 cases in s and MB.

    Ratios are of processor time (user and system), which other programs on the machine disturb
    less than wall time; the calls take turns, and minimum and median are kept.
    """
    ours = write_ours(folder / "ours", 1000)
    others = {
        "bare_same_jobs": write_bare(folder / "bare", 1000),
        "bare_same_cases": write_bare(folder / "half", 500),
        "same_directives": write_bare(folder / "dressed", 1000, directives=True),
    }
    calls: dict[str, list[Call]] = {name: [] for name in ("ours", *others)}
    for turn in range(1 + REPETITIONS):
        made = {"ours": snakemake(ours, "-n", "--configfile", "many.yaml")}
        made |= {name: snakemake(path, "-n") for name, path in others.items()}
        if turn:  # the first turn writes byte code
            for name, call in made.items():
                calls[name].append(call)
    if jobs(calls["ours"][0].text) != jobs(calls["bare_same_jobs"][0].text):
        raise RuntimeError("the bare Snakefile has another number of jobs than ours")
    best = {name: min(call.cpu_s for call in found) for name, found in calls.items()}
    middle = {name: statistics.median(c.cpu_s for c in found) for name, found in calls.items()}
    large = snakemake(write_ours(folder / "large", 5000), "-n", "--configfile", "many.yaml")
    return {
        "cases": 1000,
        "repetitions": REPETITIONS,
        "jobs": {name: jobs(found[0].text) for name, found in calls.items()},
        "cpu_s_min": {name: round(value, 2) for name, value in best.items()},
        "cpu_s_median": {name: round(value, 2) for name, value in middle.items()},
        "wall_s_min": {n: round(min(c.wall_s for c in found), 2) for n, found in calls.items()},
        "ratio_min": {name: round(best["ours"] / best[name], 2) for name in others},
        "ratio_median": {name: round(middle["ours"] / middle[name], 2) for name in others},
        "max_rss_mb": round(max(call.max_rss_mb for call in calls["ours"])),
        "large": {
            "cases": 5000,
            "jobs": jobs(large.text),
            "cpu_s": round(large.cpu_s, 1),
            "wall_s": round(large.wall_s, 1),
            "max_rss_mb": round(large.max_rss_mb),
        },
    }
