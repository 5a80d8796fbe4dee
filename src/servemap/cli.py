"""The command `servemap`: what people ask for beside Snakemake's own targets."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from servemap import (
    __version__,
    cli_curve,
    cli_diagnose,
    cli_kernel,
    cli_load,
    cli_noise,
    cli_parse,
    cli_prepare,
    cli_search,
    cli_show,
    cli_trace,
)
from servemap.analysis.gate import baseline_failures, failures, said, slower_places
from servemap.analysis.milestone import write_milestones
from servemap.analysis.summary import summarize
from servemap.analysis.table import result_table
from servemap.analysis.targets import missed
from servemap.analysis.verify import damaged_files
from servemap.cli_prepare import ConfigFile, Profile, campaign_file
from servemap.engines.embedded.tiny_model import install
from servemap.measure import status as state
from servemap.measure.baseline_status import planned_baselines
from servemap.measure.capture_status import planned_captures
from servemap.measure.ending import still_running
from servemap.measure.load import warmup_note
from servemap.measure.setup import load_context
from servemap.model.attempts import read_json
from servemap.model.cases import ReplayCase
from servemap.model.errors import ConfigError, LockedError, ResultsError
from servemap.model.load import read_yaml
from servemap.model.phases import Milestone
from servemap.model.replay import case_trace
from servemap.model.resolve import resolved_case
from servemap.model.results import RESULTS, run_dir
from servemap.model.targets import with_present_names
from servemap.report.render import outdated, render
from servemap.server.context import Context
from servemap.server.hold.leftover import left_running
from servemap.server.hold.manifest import check_manifest
from servemap.server.stop import request_stop

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(cli_prepare.doctor)
app.command()(cli_prepare.init)
app.command("diagnose")(cli_diagnose.diagnose_logs)
app.command()(cli_parse.parse)
app.command()(cli_trace.trace)
app.command()(cli_kernel.kernel)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"servemap {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Map where an LLM serving cluster's time goes."""


RunName = Annotated[
    str | None, typer.Argument(help="Name of a run below results/; the newest if absent.")
]


def find_run(name: str | None) -> Path:
    """Return a run's folder; without a name, that of the newest session.

    Raises:
        ResultsError: there is no such run.
    """
    if name is not None:
        folder = run_dir(name)
        if (folder / "run_manifest.json").exists():
            return folder
        raise ResultsError(
            f"there is no run {name!r}", str(folder), "name one of the folders below results/"
        )
    found = sorted(RESULTS.glob("*/run_manifest.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise ResultsError("there is no run yet", str(RESULTS), "start one: snakemake --cores all")
    return found[-1].parent


def run_context(folder: Path) -> Context:
    """Return the context of a run from its own manifest.

    Raises:
        ResultsError: the manifest cannot be read.
    """
    manifest = read_json(folder / "run_manifest.json") or {}
    if not isinstance(manifest.get("campaign"), dict):
        raise ResultsError(
            "the manifest cannot be read", str(folder / "run_manifest.json"), "run the campaign"
        )
    return load_context(with_present_names(manifest["campaign"]), traces=False)


@app.command()
def plan(
    targets: Annotated[list[str] | None, typer.Argument(help="Phases; all if absent.")] = None,
    configfile: ConfigFile = None,
    profile: Profile = None,
) -> None:
    """List what a target would measure: jobs, launches, nodes, expected time, noise floor."""
    context = load_context(read_yaml(campaign_file(configfile, profile)))
    check_manifest(context.run_dir, context.plan.campaign)
    phases = targets or []
    for name in phases:
        if name not in context.plan.phases:
            raise ConfigError(
                f"there is no phase {name!r}",
                "plan",
                f"name some of: {', '.join(context.plan.phases)}",
            )
    rows = state.planned_repeats(context, *phases)
    items = context.plan.items(*phases)
    launches = {name: state.planned_launch(context, name) for name in items.variants}
    nodes = {name: context.plan.nodes_of(name) for name in items.variants}
    baselines = planned_baselines(context, *phases)
    captures = planned_captures(context, *phases)
    if baselines:
        print(cli_show.baseline_table(baselines))
        print()
    print(cli_show.plan_table(rows))
    print()
    if captures:
        print(cli_show.capture_table(captures))
        print()
    policy = context.policy
    order = policy.order
    print(cli_show.plan_summary(items, rows, launches, nodes, order, captures, baselines))
    for name in items.baselines:
        said = cli_show.baseline_line(context.plan.baselines[name], len(context.plan.all_nodes()))
        print(f"baseline {name}: {said}")
    for name in dict.fromkeys(row.case for row in rows):
        case = context.plan.cases[name]
        if isinstance(case, ReplayCase):
            trace = case_trace(case, context.plan.campaign.scale.tokens_per_k)
            print(cli_show.replay_line(name, trace, case.concurrency))
        note = warmup_note(name, resolved_case(context.plan.campaign, case))
        if note is not None:
            print(note)
    asked = [item["cv"] for item in context.plan.milestones(*phases)]
    measured = cli_noise.measured_cvs(context.run_dir / "aggregate.csv")
    assumed = min(asked, default=Milestone().cv)
    print(cli_noise.noise_lines(policy.order, items.repeats, assumed, measured))
    for patch, source in state.absent_sources(context, items.variants).items():
        print(f"patch {patch}: {source} is not here; no server that it belongs to can be started")
    if state.without_metadata(context):
        print(
            "\nThese results have no Snakemake metadata (.snakemake was not copied with them): "
            "Snakemake keeps them, but it will not notice what is marked as changed above. "
            "Measure that with: snakemake -f PATH/meta.json"
        )


@app.command()
def status(run: RunName = None) -> None:
    """Show what a campaign is doing, what is left, and the last results."""
    folder = find_run(run)
    context = run_context(folder)
    repeats = state.planned_repeats(context)
    print(f"run {context.run}")
    live = state.live(context)
    print(cli_show.status_lines(live, repeats))
    planned = context.plan.items().baselines
    if planned:
        print(cli_show.baseline_states(planned, baseline_failures(folder, planned)))
    if not live.running:
        said = [
            cli_show.left_lines(left_running(context), time.time_ns()),
            cli_show.load_lines(still_running(context)),
        ]
        print("".join(f"{text}\n" for text in said if text), end="")
    print(result_table(folder, context.plan.rows(), cli_show.outdated(repeats), last=5))


@app.command()
def stop(
    run: RunName = None,
    reason: Annotated[str, typer.Option(help="Recorded with everything that is not run.")] = "",
    after_case: Annotated[
        bool, typer.Option("--after-case", help="Let the case that is running finish.")
    ] = False,
) -> None:
    """End a running campaign in good order; the rest is recorded as not run."""
    folder = find_run(run)
    context = run_context(folder)
    now = state.live(context)
    if not now.running:
        raise LockedError(f"run {context.run!r} is not running", str(folder), "nothing to stop")
    if not after_case or not reason:
        raise ConfigError(
            "stop needs --after-case and --reason",
            "servemap stop",
            "to end at once, send SIGTERM to the controller "
            f"(pid {now.holder.get('pid')}); it stops the server in good order",
        )
    request_stop(context.run_dir, context.session, "stop", f"stopped by a person: {reason}")
    print(f"run {context.run}: nothing more is measured after {now.current or 'this moment'}")


@app.command()
def table(run: RunName = None) -> None:
    """Print the result table of a run and where its report is."""
    folder = find_run(run)
    context = run_context(folder)
    rows = context.plan.rows()
    old = cli_show.outdated(state.planned_repeats(context))
    print(result_table(folder, rows, old))
    current = [row for row in rows if (row["variant"], row["case"], row["repeat"]) not in old]
    bad = [*failures(folder, current), *old]
    print(
        f"\n{len(rows) - len(bad)} of {len(rows)} repeats are valid"
        + ("" if bad else ": nothing is left to do")
    )
    report, partial = folder / "report" / "index.html", folder / "report" / "partial.html"
    if partial.exists():
        print(f"report so far: {partial}")
    elif report.exists():
        print(f"report: {report} and {folder / 'report.md'}")


@app.command()
def report(
    run: RunName = None,
    partial: Annotated[bool, typer.Option(help="Write report/partial.* instead.")] = False,
) -> None:
    """Render the summary tables and the report from what is on disk, without Snakemake."""
    folder = find_run(run)
    plan = run_context(folder).plan
    rows = plan.rows()
    if not partial:
        summarize(folder, rows, plan.campaign.limits.model_dump())
    render(folder, rows, partial=partial, milestones=plan.milestones())
    name = "partial.html" if partial else "index.html"
    print(f"report: {folder / 'report' / name}")


@app.command()
def finish(run: str) -> None:
    """Write report/partial.* unless the report is newer than everything measured."""
    folder = find_run(run)
    context = run_context(folder)
    repeats = state.planned_repeats(context)
    left = sum(row.runs for row in repeats)
    whole = folder / "report" / "index.html"
    old_whole = outdated(folder)
    if whole.exists() and not old_whole:
        for old in (folder / "report").glob("partial.*"):
            old.unlink()
        return
    render(folder, context.plan.rows(), partial=True, milestones=context.plan.milestones())
    why = cli_show.unfinished(left, len(repeats), whole.exists())
    beside = "; report.md and report/index.html are older" if old_whole and left else ""
    print(f"{why}; so far: {folder}/report/partial.html{beside}")


@app.command()
def gate(run: RunName = None) -> None:
    """Exit with 1 unless every baseline and repeat is measured and valid, every milestone met.

    Each line says whether it fails the gate: a target that is missed does with `gate: true`.
    """
    folder = find_run(run)
    plan = run_context(folder).plan
    problems = [
        *baseline_failures(folder, plan.items().baselines),
        *failures(folder, plan.rows()),
        *write_milestones(folder, plan.milestones()),
    ]
    strict, others = missed(folder, plan.rows())
    problems += strict
    uneven = slower_places(folder, plan.campaign.limits.model_dump())
    for line in said(problems, [*others, *uneven]):
        print(line)
    if problems:
        raise typer.Exit(1)
    baselines = " and every baseline measured" if plan.items().baselines else ""
    print(f"every planned repeat is valid{baselines}")


@app.command()
def verify(run: RunName = None) -> None:
    """Check every raw file of a run against its recorded sha256."""
    folder = find_run(run)
    damaged = damaged_files(folder)
    for line in damaged:
        print(line)
    if damaged:
        raise typer.Exit(1)
    print("every raw file is as it was recorded")


@app.command()
def embedded(folder: Path) -> None:
    """Make the tiny random model and put the embedded server's package beside it."""
    for path in install(folder).written:
        print(f"written: {path}")


# Their own parsers, which nodes have too, read what follows the command.
_PASSED_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
app.command(**_PASSED_ON)(cli_load.reference_server)
app.command(**_PASSED_ON)(cli_load.calibrate)


@app.command(**_PASSED_ON)
def bench(context: typer.Context) -> None:
    """Run the load client alone against any OpenAI-compatible server (see `bench --help`).

    With `--curve 1,4,16` it is run at each of these concurrencies; with `--search` again and again
    (see `bench --search --help`).
    """
    from servemap.onnode.bench import main as load_client

    options = [word.partition("=")[0] for word in context.args]
    if cli_search.OPTION in options:
        raise typer.Exit(cli_search.search(context.args, load_client))
    if cli_curve.OPTION in options:
        raise typer.Exit(cli_curve.curve(context.args, load_client))
    raise typer.Exit(load_client(context.args))
