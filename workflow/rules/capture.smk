"""Captures: a profile of a few engine steps bound to one case, apart from measured results.

INPUTS:  server/VARIANT/launch.json
OUTPUTS: captures/VARIANT/CASE/capture.json
"""


rule capture:
    input:
        "results/{run}/server/{variant}/launch.json",
    output:
        "results/{run}/captures/{variant}/{case}/capture.json",
    log:
        "results/{run}/logs/capture/{variant}/{case}.log",
    priority: measure_priority("capture")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=capture_spec,
    script:
        "../scripts/capture.py"
