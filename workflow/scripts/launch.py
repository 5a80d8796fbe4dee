"""Rule launch: the first gated start of a variant."""

from pathlib import Path

from servemap.measure.probe import require_collectors
from servemap.measure.setup import load_context
from servemap.scripting import rule_script
from servemap.server.launch.stage import launch_variant

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        launch_variant(
            load_context(snakemake.config),
            snakemake.wildcards.variant,
            snakemake.params.token,
            Path(snakemake.output[0]),
            require_collectors,
        )
