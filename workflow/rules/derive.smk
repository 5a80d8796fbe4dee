"""Derive: requests, telemetry and metrics of a repeat from its raw files; no card is touched.

INPUTS:  meta.json of the repeat
OUTPUTS: requests.parquet, telemetry.parquet, metrics.json beside it
"""


rule derive:
    input:
        "results/{run}/cases/{variant}/{case}/r{repeat}/meta.json",
    output:
        requests="results/{run}/cases/{variant}/{case}/r{repeat}/requests.parquet",
        telemetry="results/{run}/cases/{variant}/{case}/r{repeat}/telemetry.parquet",
        metrics="results/{run}/cases/{variant}/{case}/r{repeat}/metrics.json",
    log:
        "results/{run}/logs/derive/{variant}/{case}-r{repeat}.log",
    priority: PLAN.derive_priority
    conda:
        "../envs/controller.yaml"
    params:
        spec=derive_spec,
        token=derive_token,
        code=code_digest("servemap.analysis.derive"),
    script:
        "../scripts/derive.py"
