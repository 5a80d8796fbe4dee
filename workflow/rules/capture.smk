"""Captures: a profile of a few engine steps bound to one case, apart from measured results.

INPUTS:  server/VARIANT/launch.json; of `analyse` the capture.json, whose traces lie beside it
OUTPUTS: captures/VARIANT/CASE/capture.json, and from its traces analysis.json (the record of every
         try is kept below captures/raw)
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
        token=capture_token,
    script:
        "../scripts/capture.py"


rule analyse:
    input:
        "results/{run}/captures/{variant}/{case}/capture.json",
    output:
        "results/{run}/captures/{variant}/{case}/analysis.json",
    log:
        "results/{run}/logs/analyse/{variant}/{case}.log",
    priority: PLAN.derive_priority
    conda:
        "../envs/controller.yaml"
    params:
        token=analyse_token,
        code=code_digest("servemap.analysis.captures"),
    script:
        "../scripts/analyse.py"
