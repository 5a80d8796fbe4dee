"""`servemap reference-server` and `servemap calibrate`: what the load client is measured with."""

from pathlib import Path
from typing import Any

import typer

from servemap.model.errors import ConfigError
from servemap.model.load import read_yaml
from servemap.onnode.calibrate import main as measure_error
from servemap.onnode.reference import main as serve


def reference_server(context: typer.Context) -> None:
    """Answer on a known schedule and log what was really sent (see `reference-server --help`)."""
    raise typer.Exit(serve(context.args, _read))


def calibrate(context: typer.Context) -> None:
    """Measure the load client's own error on this machine (see `calibrate --help`)."""
    raise typer.Exit(measure_error(context.args))


def _read(path: str) -> Any:
    try:
        return read_yaml(Path(path))
    except ConfigError as error:
        remedy = "give --script the path of a script (docs/workloads.md, The reference server)"
        raise ConfigError(error.what, error.where, remedy) from error
