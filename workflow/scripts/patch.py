"""Rule patch: the patches of a variant in place on a node."""

from pathlib import Path

from servemap.measure.setup import load_context
from servemap.scripting import rule_script
from servemap.server.launch.patch_stage import patch_variant

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        patch_variant(
            load_context(snakemake.config),
            snakemake.wildcards.variant,
            snakemake.wildcards.node,
            Path(snakemake.output[0]),
        )
