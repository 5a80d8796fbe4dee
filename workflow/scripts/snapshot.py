"""Rule snapshot: the state of a node after the run."""

from pathlib import Path

from servemap.measure.setup import load_context
from servemap.scripting import rule_script
from servemap.server.freeze import snapshot_node

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        snapshot_node(
            load_context(snakemake.config), snakemake.wildcards.node, Path(snakemake.output.after)
        )
