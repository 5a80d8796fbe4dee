"""report.md and report/index.html of a run, from whatever is in its folder."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import servemap
from servemap.model.canon import write_text_atomic
from servemap.parsers.values import text
from servemap.report import (
    baselines,
    captures,
    client_error,
    clients,
    communication,
    comparisons,
    effects,
    engine,
    environment,
    frontier,
    gaps,
    limits,
    plots,
    records,
    repeats,
    results,
    servers,
    targets,
    telemetry,
    watching,
)
from servemap.report.document import Document, Section
from servemap.report.html import to_html
from servemap.report.markdown import to_markdown
from servemap.report.milestones import milestones as milestones_section
from servemap.report.numbers import moment
from servemap.report.run import Run, read_run


def render(
    run_dir: Path,
    plan_rows: Sequence[dict[str, Any]],
    *,
    partial: bool = False,
    milestones: Sequence[dict[str, Any]] = (),
) -> None:
    """Write report.md and report/index.html, or report/partial.md and report/partial.html.

    A whole report takes the place of a partial one. A partial one says if the whole one beside it
    is older than what was measured.

    A missing or damaged input is a named line of the report.

    Args:
        run_dir: results/RUN.
        plan_rows: what was planned, as {variant, case, repeat}.
        milestones: what they ask for (see `Plan.milestones`).
        partial: not all that is planned was measured; no declared output is written.

    Raises:
        OSError: the report cannot be written.
    """
    document = build(read_run(run_dir, plan_rows, milestones), partial)
    folder = run_dir / "report"
    if partial:
        markdown, html, link = folder / "partial.md", folder / "partial.html", "partial.html"
    else:
        markdown, html, link = run_dir / "report.md", folder / "index.html", "report/index.html"
    write_text_atomic(html, to_html(document))
    write_text_atomic(markdown, to_markdown(document, link))
    if not partial:
        for old in folder.glob("partial.*"):
            old.unlink()


def outdated(run_dir: Path) -> bool:
    """Whether there is a whole report and something was tried after it was written."""
    whole = run_dir / "report" / "index.html"
    # Every attempt counts: Snakemake removes the meta.json of a repeat that was interrupted.
    tried = run_dir.glob("cases/*/*/r*/attempts/*/meta.json")
    newest = max((path.stat().st_mtime for path in tried), default=0.0)
    return whole.exists() and whole.stat().st_mtime < newest


def build(run: Run, partial: bool) -> Document:
    """Return the report as a document."""
    banners = []
    if partial:
        banners.append(f"Partial report: {progress(run)}.")
        if outdated(run.folder):
            written = moment((run.folder / "report/index.html").stat().st_mtime_ns, run.zone)
            banners.append(
                f"report.md and report/index.html are older, of {written}: what was measured since "
                "is in this one only."
            )
    if run.simulated:
        banners.append(f"Simulated, not measured: {', '.join(run.simulated)}.")
    created = moment(run.manifest.get("created_ns"), run.zone)
    zone = (
        f"the zone {run.zone}"
        if run.zone
        else f"this machine's zone, {datetime.now().astimezone().tzname()}"
    )
    subtitle = (
        f"Run {run.name}, created {created}; report of servemap {servemap.__version__}, "
        f"{moment(time.time_ns(), run.zone)}. Times are in {zone}."
    )
    title = text(run.campaign.get("title")) or f"servemap run {run.name}"
    drawn, left_out = plots.telemetry_plots(run)
    return Document(
        title,
        subtitle,
        banners,
        [
            results.summary(run),
            results.cases(run),
            *filter(None, [milestones_section(run)]),
            targets.targets(run),
            *filter(None, [limits.limits(run)]),
            client_error.section(run),
            Section(
                "plots",
                "Throughput and latency",
                _none_drawn(run),
                plots=[*plots.throughput_plots(run), *plots.latency_plots(run)],
            ),
            *filter(None, [frontier.curves(run), frontier.searches(run)]),
            comparisons.comparisons(run),
            repeats.spread(run),
            *filter(None, [engine.engine(run), clients.clients(run)]),
            *filter(None, [watching.watching(run)]),
            effects.interference(run),
            telemetry.telemetry(run, drawn, left_out),
            baselines.baselines(run),
            *filter(None, [communication.section(run)]),
            captures.captures(run),
            servers.server(run),
            gaps.failures(run),
            gaps.not_measured(run),
            environment.environment(run),
            records.meanings(),
            gaps.problems(run),
        ],
    )


def progress(run: Run) -> str:
    """Return how far the planned repeats are: measured, failed, not run, not tried yet."""
    counts = {"measured": 0, "failed": 0, "tried but not run": 0, "not tried or interrupted": 0}
    words = {"ok": "measured", "failed": "failed", "not_run": "tried but not run"}
    for repeat in run.repeats:
        recorded = repeat.meta or repeat.status == "failed"
        word = words.get(repeat.status, "failed") if recorded else "not tried or interrupted"
        counts[word] += 1
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"of {len(run.repeats)} planned repeats {said or 'none is known'}"


def _none_drawn(run: Run) -> list[str]:
    return [] if run.valid else ["No valid repeat: nothing is plotted."]
