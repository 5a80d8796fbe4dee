"""Rule gate: fails unless every planned repeat is valid, every milestone and strict target met."""

import json
import sys
from pathlib import Path

from servemap.analysis.gate import baseline_failures, failures, said, slower_places
from servemap.analysis.milestone import write_milestones
from servemap.analysis.targets import missed
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        rows = json.loads(snakemake.params.spec)
        folder = Path("results") / snakemake.config["run"]
        repeats = failures(folder, rows)
        baselines = baseline_failures(folder, snakemake.params.baselines)
        milestones = write_milestones(folder, json.loads(snakemake.params.milestones))
        strict, others = missed(folder, rows)
        problems = [*baselines, *repeats, *milestones, *strict]
        uneven = slower_places(folder, json.loads(snakemake.params.limits))
        for line in said(problems, [*others, *uneven]):
            say(line)
        say(f"gate: {len(rows) - len(repeats)} of {len(rows)} repeats are valid")
        if baselines:
            planned = len(snakemake.params.baselines)
            say(f"gate: {planned - len(baselines)} of {planned} baselines were measured")
    if problems:
        sys.exit(1)
