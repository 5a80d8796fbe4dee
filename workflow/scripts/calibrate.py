"""Rule calibrate: the load client's own error on the load node."""

from pathlib import Path

from servemap.measure.calibrate import run_calibration
from servemap.measure.progress import calibration_line
from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        record = run_calibration(
            load_context(snakemake.config), snakemake.params.token, Path(snakemake.output[0])
        )
        say(calibration_line(record))
