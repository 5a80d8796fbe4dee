"""`servemap reference-server`: the load client's opposite, with its script in YAML or JSON."""

from pathlib import Path
from typing import Any

import typer

from servemap.model.load import read_yaml
from servemap.onnode.reference import main as serve


def reference_server(context: typer.Context) -> None:
    """Answer on a known schedule and log what was really sent (see `reference-server --help`)."""
    raise typer.Exit(serve(context.args, _read))


def _read(path: str) -> Any:
    return read_yaml(Path(path))
