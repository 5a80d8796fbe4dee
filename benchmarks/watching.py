"""What watching costs on vLLM's build for CPUs: a case without collectors, with them, at 10 Hz.

A campaign with `watching: compare` is run in a copy of the workflow; about six minutes. Needs
`make vllm`.
"""

import csv
import os
from pathlib import Path
from typing import Any

import yaml

from benchmarks.overhead import attempts
from benchmarks.sandbox import ROOT, free_port, snakemake, workflow_copy
from servemap.analysis.compare import compare, more_is_better
from servemap.analysis.noise import repeats
from servemap.engines.embedded import tiny_hf
from servemap.model.watching import SUFFIXES, watched_id

PYTHON = ROOT / ".vllm/venv/bin/python"
CASE = "decode"
# A worker in a process of its own leaves two of them spinning: two cores have no room for more.
ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
REPEATS = 8
FIGURES = ("agg_output_tps", "ttft_p50_ms", "tpot_p50_ms")
LEAST_VALID = 3
"""Repeats of each way of watching without which nothing can be said of the noise."""
LIMIT_PCT = 1.0
"""What the usual collectors may cost, where the noise lets a change of it be seen."""


def can_measure() -> bool:
    """Whether vLLM is installed beside the project."""
    return PYTHON.exists()


def measure(folder: Path) -> dict[str, Any]:
    """Run the campaign and return the cost by way of watching and figure."""
    project = workflow_copy(folder / "watching")
    tiny_hf.write_folder(project / "tiny")
    overlay = {
        "extends": "config/vllm.yaml",
        "run": "watching",
        "model": {"path": "tiny"},
        "server": {"port": free_port(), "python": str(PYTHON), "env": ENV},
        "variants": [{"id": "baseline"}],
        "variables": [],
        "cases": [
            {
                "id": CASE,
                "isl": 64,
                "osl": 256,
                "concurrency": 4,
                "min_window_s": 8,
                "watching": "compare",
                "repeats": REPEATS,
            }
        ],
        "phases": [{"id": "phase1", "cases": [CASE]}],
        # Whoever else uses the machine is in the noise of the repeats.
        "limits": {"foreign_cpu_share": 1.0},
        "policy": {"calibrate": False},
    }
    (project / "bench.yaml").write_text(yaml.safe_dump(overlay))
    load = [round(os.getloadavg()[0], 2)]
    call = snakemake(project, "--quiet", "all", "--configfile", "bench.yaml")
    run_dir = project / "results" / "watching"
    with (run_dir / "summary.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    taken = attempts(run_dir, call.started)
    return {
        "wall_s": round(call.wall_s, 1),
        "load_average": [*load, round(os.getloadavg()[0], 2)],
        "valid": {
            watched: len(values(rows, watched_id(CASE, watched), "agg_output_tps"))
            for watched in SUFFIXES
        },
        "invalid": {
            one["case"] + f" r{one['repeat']}": one["reasons"]
            for one in rows
            if one["verdict"] != "valid"
        },
        "collectors": sorted(
            {
                name
                for _, meta in taken
                for name, one in meta["collectors"].items()
                if one["status"] == "ok"
            }
        ),
        "cost": {watched: costs(rows, watched) for watched in SUFFIXES if watched != "none"},
    }


def costs(rows: list[dict[str, str]], watched: str) -> dict[str, Any]:
    """Return the change of each figure against the case without collectors."""
    found = {}
    for figure in FIGURES:
        sides = [values(rows, watched_id(CASE, one), figure) for one in ("none", watched)]
        change = compare(*map(repeats, sides), more_is_better(figure))
        found[figure] = None if change is None else {"n": [len(s) for s in sides],
                                                     **change._asdict()}  # fmt: skip
    return found


def values(rows: list[dict[str, str]], case: str, figure: str) -> list[float]:
    """Return a figure of the valid repeats of a case."""
    own = [row for row in rows if row["case"] == case and row["verdict"] == "valid"]
    return [float(row[figure]) for row in own if row[figure] not in ("", "-")]


def broken(figures: dict[str, Any]) -> list[str]:
    """Return where the usual collectors cost more than the limit, or too little is valid."""
    few = [
        f"watching: {valid} of {REPEATS} repeats with `{watched}` are valid, needs {LEAST_VALID}"
        for watched, valid in figures["valid"].items()
        if valid < LEAST_VALID
    ]
    return few + [
        f"watching: {name} changes by {one['effect_pct']:.1f} %, limit {LIMIT_PCT} %"
        for name, one in figures["cost"]["usual"].items()
        if one and one["decision"] == "worse" and abs(one["effect_pct"]) > LIMIT_PCT
    ]
