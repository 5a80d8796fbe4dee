"""Rule capture: a profile of a few engine steps of one case."""

from pathlib import Path

from servemap.measure.capture import run_capture
from servemap.measure.setup import load_context
from servemap.scripting import rule_script

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        run_capture(
            load_context(snakemake.config),
            snakemake.wildcards.variant,
            snakemake.wildcards.case,
            Path(snakemake.output[0]),
        )
