"""Rule gate: fails unless every planned repeat was measured and is valid."""

import json
import sys
from pathlib import Path

from servemap.analysis.gate import failures
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        rows = json.loads(snakemake.params.spec)
        problems = failures(Path("results") / snakemake.config["run"], rows)
        for problem in problems:
            say(problem)
        say(f"gate: {len(rows) - len(problems)} of {len(rows)} repeats are valid")
    if problems:
        sys.exit(1)
