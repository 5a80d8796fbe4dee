"""The demo campaign in a copy of the workflow: overhead per case, and the controller's memory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.overhead import overhead_per_case, spans, where_it_goes
from benchmarks.sandbox import environment, free_port, snakemake, workflow_copy

OVERHEAD_LIMIT_S = 1.5
MEMORY_LIMIT_MB = 500
NOT_OURS = ("llamaserve",)
"""Programs below the controller that are measured, not part of it."""


def measure(folder: Path) -> dict[str, Any]:
    """Run the demo once and return its figures."""
    project = workflow_copy(folder / "demo")
    subprocess.run(
        [sys.executable, "-m", "servemap", "embedded", ".demo"],
        cwd=project,
        env=environment(project),
        check=True,
        capture_output=True,
    )
    # `run` is repeated: the Snakefile loads the default where the file itself names none
    overlay = {
        "extends": "config/config.yaml",
        "run": "demo",
        "server": {"port": free_port()},
        "policy": {"calibrate": False},
    }
    (project / "bench.yaml").write_text(yaml.safe_dump(overlay))
    load_before = os.getloadavg()[0]
    call = snakemake(project, "--quiet", "all", "--configfile", "bench.yaml", watch_children=True)
    run_dir = project / "results" / "demo"
    total = spans(run_dir, call.started)
    parts = where_it_goes(run_dir, call.started, call.wall_s)
    children = {
        name: peak
        for name, peak in call.peaks_mb.items()
        if not any(word in name for word in NOT_OURS)
    }
    largest = max(children, key=lambda name: children[name])
    return {
        "wall_s": round(call.wall_s, 1),
        "repeats": int(total["repeats"]),
        "windows_s": round(total["windows"], 1),
        "warm_ups_s": round(total["warm_ups"], 1),
        "server_starts_s": round(total["server_starts"], 1),
        "overhead_per_case_s": round(overhead_per_case(call.wall_s, total), 2),
        "parts_s": {
            name: round(value, 2) for name, value in sorted(parts.items(), key=lambda i: -i[1])
        },
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "snakemake_peak_mb": round(call.max_rss_mb),
        "largest_child": largest,
        "largest_child_peak_mb": round(children[largest]),
        "children_peak_mb": {
            name: round(peak) for name, peak in sorted(children.items(), key=lambda i: -i[1])
        },
    }
