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
    params:
        spec=case_spec,
        token=case_token,
    resources:
        server=1,
    threads: MEASURE_THREADS
    priority: measure_priority("case")
    script:
        "../scripts/case.py"
