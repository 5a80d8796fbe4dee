"""Rule gate: fails unless every planned repeat is valid and every target of the gate is met."""

import json
import sys
from pathlib import Path

from servemap.analysis.gate import baseline_failures, failures
from servemap.analysis.targets import missed
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        rows = json.loads(snakemake.params.spec)
        folder = Path("results") / snakemake.config["run"]
        repeats = failures(folder, rows)
        baselines = baseline_failures(folder, snakemake.params.baselines)
        strict, others = missed(folder, rows)
        problems = [*baselines, *repeats, *strict]
        for problem in [*problems, *others]:
            say(problem)
        say(f"gate: {len(rows) - len(repeats)} of {len(rows)} repeats are valid")
        if baselines:
            planned = len(snakemake.params.baselines)
            say(f"gate: {planned - len(baselines)} of {planned} baselines were measured")
    if problems:
        sys.exit(1)
