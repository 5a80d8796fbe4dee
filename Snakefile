"""servemap: one campaign from frozen facts to a report. No logic here; see workflow/rules."""

from snakemake.utils import min_version

min_version("9.19")


if not config.get("run"):

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/freeze.smk"
include: "workflow/rules/baseline.smk"
include: "workflow/rules/server.smk"
include: "workflow/rules/case.smk"
include: "workflow/rules/capture.smk"
include: "workflow/rules/derive.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/targets.smk"


onstart:
    begin_session()


onsuccess:
    end_session("the campaign ended")


onerror:
    end_session("the campaign ended with an error")
