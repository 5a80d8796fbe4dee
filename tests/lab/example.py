"""`python -m tests.lab.example FOLDER`: a campaign on a lab, of which report and tables are kept.

The link is shaped to 1 Gbit/s. The report's section on the environment and tables without rows are
left out. What names this machine's folders is written as that of a made-up one, so that the same
command gives the same names anywhere.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from servemap.parsers.communication.busbw import busbw_factor
from tests.lab.__main__ import run
from tests.lab.lab import Lab
from tests.lab.project import LabProject, make_seed
from tests.parts import PARTS

KEPT = (
    "report.md", "summary.csv", "tables/baseline*.csv", "tables/throughput_over_time.csv",
    *(f"tables/case_{name}_summary.csv" for name in ("cpu", "engine_queue", "memory", "network")),
)  # fmt: skip
ENVIRONMENT = re.compile(r"^## Environment\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
LEFT_OUT = "## Environment\n\nLeft out of this example: facts and packages of both machines.\n\n"
PAGE = ("[report/index.html](report/index.html)", "report/index.html, left out of this example")
EXPECTED = {"all_reduce": 0.118, "all_gather": 0.118, "reduce_scatter": 0.059, "all_to_all": 0.118}
"""busbw in GB/s that the link allows from 2M; a reduce-scatter of gloo is an all-reduce.

`ProcessGroupGloo::reduce_scatter_tensor_coalesced` of PyTorch's ProcessGroupGloo.cpp: every rank
gets the whole sum, twice what it needs.
"""
FROM_BYTES = 2 << 20
MOST_BYTES = 200_000


def example(campaign: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Return the lab's campaign with gloo between the nodes and an injected prompt."""
    mixed = {
        "id": "decode_with_long_prefill", "kind": "mixed",
        "background": {"isl": "1K", "osl": "1K", "concurrency": 4, "min_window_s": 8},
        "inject": {"isl": "64K", "osl": 1, "after_s": 2, "every_s": 2, "count": 3},
    }  # fmt: skip
    gloo = {
        "id": "gloo", "kind": "collective", "python": python,
        "sizes": ["8K", "128K", "2M", "16M"], "iterations": 10,
    }  # fmt: skip
    return {
        **campaign,
        "time_zone": "UTC",
        "cases": [*campaign["cases"], mixed],
        "baselines": [*campaign["baselines"], gloo],
        "phases": [
            {**campaign["phases"][0], "baselines": ["network", "gloo"]},
            campaign["phases"][1],
            {"id": "phase2", "title": "Interference", "requires": ["phase1"],
             "cases": ["decode_with_long_prefill"]},
        ],
    }  # fmt: skip


def renamed(text: str, names: Iterable[tuple[str, str]]) -> str:
    """Return a text with each folder called by its other name, the longest ones first."""
    for folder, name in sorted(names, key=lambda one: -len(one[0])):
        text = text.replace(folder, name)
    return text


def keep(results: Path, target: Path, names: Iterable[tuple[str, str]]) -> int:
    """Write what is kept of a run to a folder, in place of what was there; return its bytes."""
    shutil.rmtree(target, ignore_errors=True)
    names = [*names, PAGE]
    kept = 0
    for path in sorted(one for pattern in KEPT for one in results.glob(pattern)):
        text = path.read_text()
        if path.suffix == ".csv" and text.count("\n") < 2:
            continue  # nothing of that kind was there to be measured
        place = target / path.relative_to(results)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(renamed(ENVIRONMENT.sub(LEFT_OUT, text), names))
        kept += place.stat().st_size
    return kept


def known_answers(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the lines of the table of docs/baselines.md, from rows of tables/baselines.csv."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if row["baseline"] == "gloo" and row["value"]:
            key = (row["operation"], int(row["size_bytes"]))
            found.setdefault(key, {})[row["figure"]] = float(row["value"])
    lines = []
    for (operation, size), figures in found.items():
        factor = busbw_factor(operation, 2)
        best = size / figures["time_min"] * factor / 1e9
        middle = figures["busbw"] / 1e9
        wanted = EXPECTED[operation] if size >= FROM_BYTES else None
        share = "–" if wanted is None else f"{middle / wanted * 100:.0f} %"
        cells = (f"`{operation}`", _said(size), f"{factor:g}", wanted or "–", f"{best:.3f}",
                 f"{middle:.3f}", share)  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _said(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


def main(target: Path) -> int:
    """Measure on a lab and keep the result in a folder; Snakemake's exit code."""
    found = {part: PARTS[part][0]() for part in ("lab", "vllm")}
    if missing := [PARTS[part][1] for part, one in found.items() if one is None]:
        print(f"error: {'; '.join(missing)}", file=sys.stderr)
        return 1
    python = str(found["vllm"])
    with tempfile.TemporaryDirectory() as scratch, Lab(make_seed(Path(scratch) / "seed")) as lab:
        lab.shape("1gbit")
        project = LabProject.on(lab, Path(scratch) / "project")
        project.write_campaign(example(project.campaign(), python))
        try:
            code = run(project, "all")
            code = run(project, "gate") or code
        finally:
            project.clean_up()
        names = [
            (sys.prefix, "/opt/servemap"), (str(Path(python).parents[1]), "/opt/vllm"),
            (str(project.folder), "/home/you/servemap"), (str(lab.folder), "/home/you/lab"),
        ]  # fmt: skip
        print(f"{target}: {keep(project.results, target, names)} bytes")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
