"""Calibrate: the load client's own error on the node that makes the load, before the first case.

INPUTS:  freeze/NODE.json of the load node
OUTPUTS: calibration.json (every try is kept below calibration/)
"""


rule calibrate:
    input:
        f"results/{RUN}/freeze/{PLAN.load_node}.json",
    output:
        f"results/{RUN}/calibration.json",
    log:
        f"results/{RUN}/logs/calibrate/calibrate.log",
    priority: measure_priority("calibrate")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=calibrate_spec,
        token=calibrate_token,
        code=code_digest("servemap.onnode.calibrate"),
    script:
        "../scripts/calibrate.py"
