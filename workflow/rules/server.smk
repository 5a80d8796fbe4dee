"""Server: a variant's patches in place, its first gated start recorded.

INPUTS:  freeze/NODE.json of the variant's nodes, baselines/NAME.json of those that it requires
OUTPUTS: server/VARIANT/patches/NODE.json, server/VARIANT/launch.json
"""


rule patch:
    input:
        "results/{run}/freeze/{node}.json",
    output:
        "results/{run}/server/{variant}/patches/{node}.json",
    log:
        "results/{run}/logs/patch/{variant}-{node}.log",
    priority: measure_priority("patch")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=patch_spec,
    script:
        "../scripts/patch.py"


rule launch:
    input:
        variant_freezes,
        variant_patches,
        variant_baselines,
    output:
        "results/{run}/server/{variant}/launch.json",
    log:
        "results/{run}/logs/launch/{variant}.log",
    priority: measure_priority("launch")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=launch_spec,
        token=launch_token,
    script:
        "../scripts/launch.py"
