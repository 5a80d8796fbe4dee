"""Rule baseline: one communication baseline."""

from pathlib import Path

from servemap.measure.baseline import run_baseline
from servemap.measure.progress import baseline_line
from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        record = run_baseline(
            load_context(snakemake.config),
            snakemake.wildcards.baseline,
            snakemake.params.token,
            Path(snakemake.output[0]),
        )
        say(baseline_line(record))
