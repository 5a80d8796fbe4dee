"""Server: a variant's patches in place, its first gated start recorded.

INPUTS:  freeze/NODE.json of the variant's nodes
OUTPUTS: server/VARIANT/patches/NODE.json, server/VARIANT/launch.json
"""


rule patch:
    input:
        "results/{run}/freeze/{node}.json",
    output:
        "results/{run}/server/{variant}/patches/{node}.json",
    log:
        "results/{run}/logs/patch/{variant}-{node}.log",
    params:
        spec=patch_spec,
    resources:
        server=1,
    threads: MEASURE_THREADS
    priority: measure_priority("patch")
    script:
        "../scripts/patch.py"


rule launch:
    input:
        variant_freezes,
        variant_patches,
    output:
        "results/{run}/server/{variant}/launch.json",
    log:
        "results/{run}/logs/launch/{variant}.log",
    params:
        spec=launch_spec,
        token=launch_token,
    resources:
        server=1,
    threads: MEASURE_THREADS
    priority: measure_priority("launch")
    script:
        "../scripts/launch.py"
