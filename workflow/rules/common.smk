"""Loads and checks the campaign; gives rules their parameters. Parsing changes nothing on disk."""

import gc
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.enums import Quietness
from snakemake.utils import validate

from servemap.measure.profiled import why_unavailable
from servemap.measure.setup import load_context
from servemap.model.attempts import read_records, token
from servemap.model.captures import capture_records
from servemap.model.canon import canonical_json
from servemap.model.derived import analysis_token, derived_token
from servemap.model.code_digest import code_digest
from servemap.model.errors import ServemapError
from servemap.model.load import assemble
from servemap.model.name_pattern import any_of
from servemap.model.results import baseline_history, calibration_history
from servemap.scripting import keep_thread_variables
from servemap.server.hold import session
from servemap.server.hold.manifest import check_manifest

# The DAG is a large heap that lives until the end: walking it for garbage every 700 objects is a
# sixth of a dry run of 1,000 cases. Garbage is still collected, less often (benchmarks/).
gc.freeze()
gc.set_threshold(200_000, 50, 100)


if workflow.is_main_process:
    keep_thread_variables()


def refuse(error):
    """Return what stops Snakemake; with `--quiet all` it would say nothing, so it is said here."""
    if Quietness.ALL in (workflow.output_settings.quiet or ()):
        print(f"error: {error}", file=sys.stderr)
    return WorkflowError(str(error))


try:
    config.update(assemble(config))
    CONTEXT = load_context(config)
    if workflow.is_main_process:
        check_manifest(CONTEXT.run_dir, CONTEXT.plan.campaign)
except ServemapError as error:
    raise refuse(error) from None

# The models say what is wrong in words; the generated schema must agree with them.
validate(config, Path(workflow.basedir) / "workflow/schemas/config.schema.yaml")

PLAN = CONTEXT.plan
RUN = CONTEXT.run
# Where the controller is itself measured or makes the load, nothing of ours runs beside a case:
# a job that asks for more threads than there are gets all cores.
MEASURE_THREADS = 10_000 if PLAN.controller_is_measured else 1


wildcard_constraints:
    run=RUN,
    node=any_of(PLAN.all_nodes()),
    variant=any_of(PLAN.variants),
    case=any_of(PLAN.cases),
    baseline=any_of(PLAN.baselines or ["none"]),
    repeat=r"\d+",


def begin_session():
    try:
        session.begin(CONTEXT)
    except ServemapError as error:
        raise refuse(error) from None


def end_session(reason, logs):
    session.end(CONTEXT, reason, [Path(log) for log in logs])
    shell("{sys.executable} -m servemap finish {RUN} || true")


def freeze_spec(wildcards):
    return PLAN.spec("freeze")


def patch_spec(wildcards):
    return PLAN.spec("patch", wildcards.variant)


def launch_spec(wildcards):
    return PLAN.spec("launch", wildcards.variant)


def case_spec(wildcards):
    return PLAN.spec("case", wildcards.variant, wildcards.case)


def capture_spec(wildcards):
    return PLAN.spec("capture", wildcards.variant, wildcards.case)


def baseline_spec(wildcards):
    return PLAN.spec("baseline", wildcards.baseline)


def calibrate_spec(wildcards):
    return PLAN.spec("calibrate")


def derive_spec(wildcards):
    return PLAN.spec("derive")


def summary_spec(wildcards):
    return canonical_json(PLAN.rows())


def limits_spec(wildcards):
    return canonical_json(PLAN.campaign.limits.model_dump())


def milestone_spec(*phases):
    """Return what the milestones of some phases (all if none is named) ask for, as JSON."""
    return canonical_json(PLAN.milestones(*phases))


def milestone_phases():
    """Return the phases that are a milestone or require one."""
    return [phase for phase in PLAN.phases if PLAN.milestones(phase)]


def plain_phases():
    """Return the phases whose target only collects."""
    return [phase for phase in PLAN.phases if not PLAN.milestones(phase)]


def planned(function):
    """Keep the first answer of a token: Snakemake asks again when it has removed the outputs."""
    answers = {}

    def answer(wildcards):
        key = tuple(wildcards)
        if key not in answers:
            answers[key] = function(wildcards)
        return answers[key]

    return answer


@planned
def launch_token(wildcards):
    folder = CONTEXT.run_dir / "server" / wildcards.variant
    records = read_records(folder / "launches", folder / "launch.json")
    sha256 = PLAN.spec_sha256("launch", wildcards.variant)
    return token(records, sha256, CONTEXT.policy.max_attempts)


@planned
def case_token(wildcards):
    repeat = Path(
        f"results/{RUN}/cases/{wildcards.variant}/{wildcards.case}/r{wildcards.repeat}"
    )
    case = PLAN.cases[wildcards.case]
    sha256 = PLAN.spec_sha256("case", wildcards.variant, wildcards.case)
    return token(
        read_records(repeat / "attempts", repeat / "meta.json"),
        sha256,
        CONTEXT.policy.max_attempts,
        case.expect == "failure",
    )


@planned
def baseline_token(wildcards):
    records = read_records(baseline_history(RUN, wildcards.baseline))
    sha256 = PLAN.spec_sha256("baseline", wildcards.baseline)
    return token(records, sha256, CONTEXT.policy.max_attempts)


@planned
def calibrate_token(wildcards):
    records = read_records(
        calibration_history(RUN), CONTEXT.run_dir / "calibration.json"
    )
    return token(records, PLAN.spec_sha256("calibrate"), CONTEXT.policy.max_attempts)


@planned
def capture_token(wildcards):
    records = capture_records(RUN, wildcards.variant, wildcards.case)
    sha256 = PLAN.spec_sha256("capture", wildcards.variant, wildcards.case)
    return token(records, sha256, CONTEXT.policy.max_attempts)


@planned
def derive_token(wildcards):
    return derived_token(
        Path(
            f"results/{RUN}/cases/{wildcards.variant}/{wildcards.case}/r{wildcards.repeat}"
        )
    )


@planned
def analyse_token(wildcards):
    return analysis_token(
        Path(f"results/{RUN}/captures/{wildcards.variant}/{wildcards.case}")
    )


def variant_freezes(wildcards):
    return [
        f"results/{RUN}/freeze/{node}.json" for node in PLAN.nodes_of(wildcards.variant)
    ]


def variant_patches(wildcards):
    return [
        f"results/{RUN}/server/{wildcards.variant}/patches/{node}.json"
        for node in PLAN.nodes_of(wildcards.variant)
    ]


def variant_baselines(wildcards):
    return [
        f"results/{RUN}/baselines/{name}.json"
        for name in PLAN.required_baselines(wildcards.variant)
    ]


def measure_priority(kind):
    def priority(wildcards):
        return PLAN.priority(kind, *wildcards_key(kind, wildcards))

    return priority


def wildcards_key(kind, wildcards):
    names = {
        "baseline": ["baseline"],
        "calibrate": [],
        "patch": ["variant"],
        "launch": ["variant"],
        "case": ["variant", "case", "repeat"],
        "capture": ["variant", "case"],
    }
    return [getattr(wildcards, name) for name in names[kind]]


def measured_files(*phases):
    """Return the files that the measuring jobs of some phases (all if none is named) make."""
    items = PLAN.items(*phases)
    return [
        *[f"results/{RUN}/baselines/{name}.json" for name in items.baselines],
        *(
            [f"results/{RUN}/calibration.json"]
            if PLAN.calibrated and items.repeats
            else []
        ),
        *[f"results/{RUN}/cases/{v}/{c}/r{k}/meta.json" for v, c, k in items.repeats],
        *[f"results/{RUN}/captures/{v}/{c}/capture.json" for v, c in items.captures],
    ]


def derived_files(*phases):
    """Return the metrics of the repeats of some phases, and what their captures say."""
    items = PLAN.items(*phases)
    return [
        *[
            f"results/{RUN}/cases/{v}/{c}/r{k}/metrics.json"
            for v, c, k in items.repeats
        ],
        *[
            f"results/{RUN}/captures/{v}/{c}/analysis.json"
            for v, c in items.captures
            if why_unavailable(CONTEXT, v, PLAN.captured(c).kind) is None
        ],
    ]


def launch_files(*phases):
    """Return the launch records of the variants of some phases."""
    return [
        f"results/{RUN}/server/{v}/launch.json" for v in PLAN.items(*phases).variants
    ]
