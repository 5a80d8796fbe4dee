"""Report: summary tables over all repeats, then report.md and the HTML report.

INPUTS:  every measured and derived file of the campaign, the state of the nodes after the run
OUTPUTS: summary.csv, summary.jsonl, aggregate.csv, report.md, report/index.html
"""


rule summary:
    input:
        measured_files(),
        derived_files(),
        launch_files(),
    output:
        csv="results/{run}/summary.csv",
        jsonl="results/{run}/summary.jsonl",
        aggregate="results/{run}/aggregate.csv",
    log:
        "results/{run}/logs/summary/summary.log",
    conda:
        "../envs/controller.yaml"
    params:
        spec=summary_spec,
        limits=limits_spec,
        code=code_digest("servemap.analysis.summary"),
    script:
        "../scripts/summary.py"


rule report:
    input:
        expand("results/{run}/summary.csv", run=RUN),
        expand(
            "results/{run}/snapshots/{node}-after.json", run=RUN, node=PLAN.all_nodes()
        ),
    output:
        md=report(
            f"results/{RUN}/report.md",
            caption="../report/report.rst",
            category="servemap",
        ),
        html=f"results/{RUN}/report/index.html",
    log:
        f"results/{RUN}/logs/report/report.log",
    conda:
        "../envs/controller.yaml"
    params:
        spec=summary_spec,
        milestones=milestone_spec(),
        code=code_digest("servemap.report.render"),
    script:
        "../scripts/report.py"
