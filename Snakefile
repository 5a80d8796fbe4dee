"""servemap: one campaign from frozen facts to a report. No logic here; see workflow/rules."""

from snakemake.utils import min_version

min_version("9.19")


if not (config.get("run") or config.get("extends")):

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/freeze.smk"
include: "workflow/rules/baseline.smk"
include: "workflow/rules/calibrate.smk"
include: "workflow/rules/server.smk"
include: "workflow/rules/case.smk"
include: "workflow/rules/capture.smk"
include: "workflow/rules/derive.smk"
include: "workflow/rules/report.smk"


# Targets: the phases of the campaign, and what people and CI ask for by name.
rule all:
    default_target: True
    input:
        expand("results/{run}/report.md", run=RUN),
        measured_files(),
        derived_files(),
    localrule: True


for phase in plain_phases():

    rule:
        name:
            phase
        input:
            measured_files(phase),
            derived_files(phase),
            launch_files(phase),
        localrule: True


for phase in milestone_phases():

    rule:
        name:
            phase
        input:
            measured_files(phase),
            derived_files(phase),
            launch_files(phase),
        log:
            f"results/{RUN}/logs/milestone/{phase}.log",
        localrule: True
        conda:
            "workflow/envs/controller.yaml"
        params:
            spec=milestone_spec(phase),
        script:
            "workflow/scripts/milestone.py"


rule gate:
    log:
        f"results/{RUN}/logs/gate/gate.log",
    conda:
        "workflow/envs/controller.yaml"
    params:
        spec=summary_spec,
        baselines=PLAN.items().baselines,
        milestones=milestone_spec(),
        limits=limits_spec,
    script:
        "workflow/scripts/gate.py"


rule teardown:
    log:
        f"results/{RUN}/logs/teardown/teardown.log",
    conda:
        "workflow/envs/controller.yaml"
    resources:
        server=1,
    script:
        "workflow/scripts/teardown.py"


rule unpatch:
    log:
        f"results/{RUN}/logs/unpatch/unpatch.log",
    conda:
        "workflow/envs/controller.yaml"
    resources:
        server=1,
    script:
        "workflow/scripts/unpatch.py"


onstart:
    begin_session()


onsuccess:
    end_session("the campaign ended", log)


onerror:
    end_session("the campaign ended with an error", log)
