"""The command `servemap trace`: what the files of a profiler say."""

from pathlib import Path
from typing import Annotated

import typer

from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError
from servemap.model.files import regular
from servemap.parsers.traces.modules import ModuleLog, module_pattern, read_modules


def trace(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Kineto traces (.json, .json.gz, .json.zst) or nsys exports (.sqlite) of one "
            "capture: one file a rank.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Where the whole analysis is written as JSON.")
    ] = Path("analysis.json"),
    timeline_out: Annotated[
        Path | None,
        typer.Option("--timeline", help="Also write a small timeline that Perfetto opens."),
    ] = None,
    experts: Annotated[
        list[Path] | None,
        typer.Option(
            "--experts", help="What SGLang's expert distribution recorder wrote (.pt), each file."
        ),
    ] = None,
    module_log: Annotated[
        Path | None,
        typer.Option("--module-log", help="A log in which the model sums up its own modules."),
    ] = None,
    module_lines: Annotated[
        str | None,
        typer.Option(
            "--module-lines",
            help="How its lines look: a regular expression with the groups module, total_ms "
            "(or total_s, total_us) and, if there, mean_ms, count, phase, step.",
        ),
    ] = None,
) -> None:
    """Say where the time of a profiled capture goes: by class of work, gaps, steps, ranks."""
    read = [*files, *(experts or ()), *([module_log] if module_log else [])]
    for written in filter(None, (out, timeline_out)):
        if any(written.resolve() == file.resolve() for file in read):
            raise ConfigError(
                "the analysis would overwrite a file it reads", str(written), "name another file"
            )
    if timeline_out is not None and timeline_out.resolve() == out.resolve():
        raise ConfigError(
            "the timeline would overwrite the analysis", str(out), "name another file"
        )
    # Loaded here, since all other commands would wait for it.
    from servemap.analysis.traces.analyse import analyse
    from servemap.analysis.traces.modules_text import modules_text
    from servemap.analysis.traces.questions import answers
    from servemap.analysis.traces.record import analysis_record
    from servemap.analysis.traces.text import analysis_text
    from servemap.analysis.traces.timeline import timeline

    modules = _modules(module_log, module_lines)
    found = analyse(files, experts or ())
    said = answers(found.analysis)
    write_json_atomic(out, analysis_record(found.analysis, said, modules))
    typer.echo(analysis_text(found.analysis, said))
    if modules is not None:
        typer.echo(f"\n{modules_text(modules)}")
    typer.echo(f"\nwritten: {out}")
    if timeline_out is not None:
        write_json_atomic(timeline_out, timeline(found.timeline()))
        typer.echo(f"written: {timeline_out}, to be opened at ui.perfetto.dev or chrome://tracing")


def _modules(log: Path | None, lines: str | None) -> ModuleLog | None:
    if (log is None) != (lines is None):
        raise ConfigError(
            "a log of modules and how its lines look belong together",
            "servemap trace",
            "give both --module-log and --module-lines",
        )
    if log is None or lines is None:
        return None
    pattern = module_pattern(lines)
    with open(log, encoding="utf-8", errors="replace", opener=regular) as text:
        return read_modules(text, pattern)


def _group() -> None:
    """Keep the word `trace` a command of its own, as it is among the others."""


alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
"""`servemap trace` without the other commands."""
alone.callback()(_group)
alone.command()(trace)
