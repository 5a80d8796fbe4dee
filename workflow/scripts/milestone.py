"""Phase targets that are milestones, or require one: fail where repeats are few or do not agree."""

import json
import sys
from pathlib import Path

from servemap.analysis.milestone import write_milestones
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        asked = json.loads(snakemake.params.spec)
        folder = Path("results") / snakemake.config["run"]
        missed = write_milestones(folder, asked)
        for text in missed:
            say(text)
        for phase in asked:
            say(f"milestone {phase['phase']}: {folder}/milestones/{phase['phase']}.json")
    if missed:
        sys.exit(1)
