"""The command `servemap trace`: what the files of a profiler say."""

from pathlib import Path
from typing import Annotated

import typer

from servemap.analysis.traces.analyse import analyse
from servemap.analysis.traces.questions import answers
from servemap.analysis.traces.record import analysis_record
from servemap.analysis.traces.text import analysis_text
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError


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
) -> None:
    """Say where the time of a profiled capture goes: by class of work, gaps, steps, ranks."""
    if any(out.absolute() == file.absolute() for file in files):
        raise ConfigError(
            "the analysis would overwrite a trace", str(out), "name another file with --out"
        )
    analysis = analyse(files)
    said = answers(analysis)
    write_json_atomic(out, analysis_record(analysis, said))
    typer.echo(analysis_text(analysis, said))
    typer.echo(f"\nwritten: {out}")
