"""Rule summary: one row a repeat, one row a variant and case, one table a metric family."""

import json
from pathlib import Path

from servemap.analysis.summary import summarize
from servemap.scripting import rule_script

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        rows = json.loads(snakemake.params.spec)
        limits = json.loads(snakemake.params.limits)
        summarize(Path(snakemake.output.csv).parent, rows, limits)
