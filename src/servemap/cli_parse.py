"""`servemap parse`: recorded tool output to JSON."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from servemap.model.errors import ConfigError, ParseError
from servemap.model.files import read_bytes
from servemap.model.protocol import SCHEMA
from servemap.parsers.frame import MAX_BYTES, check_size
from servemap.parsers.records import skip_summary


def parse(
    kind: Annotated[str | None, typer.Argument(help="What the file is; see --list.")] = None,
    file: Annotated[str | None, typer.Argument(help="Recorded output; - is stdin.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the kinds.")] = False,
) -> None:
    """Print as JSON what a recorded output of a tool holds, and what of it was skipped."""
    # Loaded here, since all other commands would wait for it.
    from servemap.parsers.kinds import KINDS
    from servemap.parsers.kinds import parse as parse_kind

    if show:
        width = max(map(len, KINDS))
        for name, known in KINDS.items():
            typer.echo(f"{name:{width}}  {known.about}")
        return
    if kind is None or file is None:
        raise ConfigError("parse needs a kind and a file", "servemap parse", "see --list")
    try:
        raw = _read(file)
        data, skipped = parse_kind(kind, raw)
    except ParseError as error:
        raise ParseError(error.what, f"{file}: {error.where}", error.remedy) from error
    whole = {
        "schema": SCHEMA,
        "kind": kind,
        "data": data,
        "skipped": [piece._asdict() for piece in skipped],
    }
    # ASCII, so that it can be printed in every locale.
    typer.echo(json.dumps(whole, allow_nan=False, indent=1))
    if skipped:
        typer.echo(f"skipped {len(skipped)}: {'; '.join(skip_summary(skipped))}", err=True)


def _read(file: str) -> bytes:
    """Return the bytes of a file or of standard input.

    Raises:
        OSError: it is no file that can be read.
        ParseError: it is too long to be parsed.
    """
    if file == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    check_size(Path(file).stat().st_size, "its size")
    return read_bytes(Path(file))
