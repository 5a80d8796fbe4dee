"""Rule analyse: where the time of a capture goes."""

from pathlib import Path

from servemap.analysis.captures import analyse_capture
from servemap.scripting import rule_script

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        analyse_capture(
            Path(snakemake.input[0]),
            Path(snakemake.output[0]),
            snakemake.params.token,
        )
