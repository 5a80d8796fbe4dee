"""Rule report: report.md and the self-contained HTML report."""

import json
from pathlib import Path

from servemap.report.render import render
from servemap.scripting import rule_script

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        rows = json.loads(snakemake.params.spec)
        milestones = json.loads(snakemake.params.milestones)
        render(Path(snakemake.output.md).parent, rows, milestones=milestones)
