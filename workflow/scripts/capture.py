"""Rule capture: a profile of a few engine steps of one case."""

from pathlib import Path

from servemap.measure.capture import run_capture
from servemap.measure.progress import capture_line
from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        variant, case = snakemake.wildcards.variant, snakemake.wildcards.case
        context = load_context(snakemake.config)
        record = run_capture(
            context, variant, case, snakemake.params.token, Path(snakemake.output[0])
        )
        say(capture_line(record))
