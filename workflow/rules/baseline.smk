"""Baselines: communication between the nodes with no server of ours on the cards.

INPUTS:  freeze/NODE.json of every node
OUTPUTS: baselines/NAME.json (every try is kept below baselines/raw)
"""


rule baseline:
    input:
        expand("results/{run}/freeze/{node}.json", run=RUN, node=PLAN.all_nodes()),
    output:
        "results/{run}/baselines/{baseline}.json",
    log:
        "results/{run}/logs/baseline/{baseline}.log",
    priority: measure_priority("baseline")
    conda:
        "../envs/controller.yaml"
    threads: MEASURE_THREADS
    resources:
        server=1,
    params:
        spec=baseline_spec,
        token=baseline_token,
    script:
        "../scripts/baseline.py"
