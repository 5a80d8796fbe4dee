"""Freeze: the facts of every node before the first server starts, the state of it before and after.

INPUTS:  none; for the state after the run, every measured file
OUTPUTS: freeze/NODE.json, snapshots/NODE-before.json, snapshots/NODE-after.json
"""


rule freeze:
    output:
        facts="results/{run}/freeze/{node}.json",
        before="results/{run}/snapshots/{node}-before.json",
    log:
        "results/{run}/logs/freeze/{node}.log",
    priority: PLAN.derive_priority
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=freeze_spec,
    script:
        "../scripts/freeze.py"


rule snapshot:
    input:
        measured_files(),
    output:
        after="results/{run}/snapshots/{node}-after.json",
    log:
        "results/{run}/logs/snapshot/{node}.log",
    conda:
        "../envs/controller.yaml"
    resources:
        server=1,
    script:
        "../scripts/snapshot.py"
