"""Rule case: one repeat of a case."""

from pathlib import Path

from servemap.analysis.disturbed import disturbances
from servemap.analysis.probes import judge_with
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.progress import case_line
from servemap.measure.setup import load_context
from servemap.scripting import rule_script, say

if __name__ == "__main__":
    with rule_script(Path(snakemake.log[0])):
        context = load_context(snakemake.config)
        job = Job(
            snakemake.wildcards.variant,
            snakemake.wildcards.case,
            int(snakemake.wildcards.repeat),
            snakemake.params.token,
        )
        campaign = context.plan.campaign
        disturbed, judge = disturbances(campaign), judge_with(campaign.limits.model_dump())
        meta = run_case(context, job, Path(snakemake.output[0]), disturbed, judge)
        say(case_line(context.plan, job, meta))
