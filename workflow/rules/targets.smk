"""Targets: the phases of the campaign, and what people and CI ask for by name.

INPUTS:  the files of the stages
OUTPUTS: none
"""


rule all:
    input:
        expand("results/{run}/report.md", run=RUN),
        measured_files(),
        derived_files(),
    default_target: True
    localrule: True


for phase in PLAN.phases:

    rule:
        name:
            phase
        input:
            measured_files(phase),
            derived_files(phase),
            launch_files(phase),
        localrule: True


rule gate:
    log:
        f"results/{RUN}/logs/gate/gate.log",
    params:
        spec=summary_spec,
    script:
        "../scripts/gate.py"


rule teardown:
    log:
        f"results/{RUN}/logs/teardown/teardown.log",
    resources:
        server=1,
    script:
        "../scripts/teardown.py"


rule unpatch:
    log:
        f"results/{RUN}/logs/unpatch/unpatch.log",
    resources:
        server=1,
    script:
        "../scripts/unpatch.py"
