"""Cases: one repeat at a time against the gated server of its variant.

INPUTS:  server/VARIANT/launch.json
OUTPUTS: cases/VARIANT/CASE/rK/meta.json (raw files lie under attempts/NNN beside it)
"""


rule case:
    input:
        "results/{run}/server/{variant}/launch.json",
    output:
        "results/{run}/cases/{variant}/{case}/r{repeat}/meta.json",
    log:
        "results/{run}/logs/case/{variant}/{case}-r{repeat}.log",
    priority: measure_priority("case")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=case_spec,
        token=case_token,
    script:
        "../scripts/case.py"
