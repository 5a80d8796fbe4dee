"""Rule derive: requests, telemetry and metrics of a repeat."""

import json
from pathlib import Path

from servemap.analysis.derive import derive_attempt
from servemap.scripting import rule_script

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        derive_attempt(
            Path(snakemake.output.metrics).parent,
            {**json.loads(snakemake.params.spec), "token": snakemake.params.token},
        )
