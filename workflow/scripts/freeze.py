"""Rule freeze: the facts of a node and its state before the run."""

from pathlib import Path

from servemap.measure.setup import load_context
from servemap.scripting import rule_script
from servemap.server.freeze import freeze_node

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        freeze_node(
            load_context(snakemake.config),
            snakemake.wildcards.node,
            Path(snakemake.output.facts),
            Path(snakemake.output.before),
        )
