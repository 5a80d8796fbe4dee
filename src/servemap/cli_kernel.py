"""`servemap kernel`: what Nsight Compute says of a kernel, over its launches."""

import shlex
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer
from tabulate import tabulate

from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError, ParseError, printable
from servemap.model.files import read_bytes
from servemap.model.protocol import SCHEMA

_LONGEST = 60


def kernel(
    table: Annotated[
        Path, typer.Argument(help="Output of ncu --csv; with --script it is written there.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Where all figures are written as JSON.")] = (
        Path("kernel.json")
    ),
    script: Annotated[
        str | None,
        typer.Option("--script", help="Command that launches the kernel; ncu is run on it here."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--kernel", help="Regular expression for the kernel's name.")
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Launches left out first.")] = 0,
    count: Annotated[int, typer.Option("--count", min=1, help="Launches profiled.")] = 10,
    program: Annotated[str, typer.Option("--program", help="How ncu is called.")] = "ncu",
) -> None:
    """Say what limits a kernel, by Nsight Compute: mean, least and largest over its launches."""
    # Loaded here, since all other commands would wait for it.
    from servemap.analysis.kernels import kernels
    from servemap.parsers.kinds import parse

    if (script is None) != (name is None):
        raise ConfigError(
            "a script and the kernel in it belong together",
            "servemap kernel",
            "give both --script and --kernel",
        )
    if script is not None and name is not None:
        _run(shlex.split(script), name, table, skip, count, program)
    try:
        found = parse("ncu", read_bytes(table)).data
    except ParseError as error:
        raise ParseError(error.what, str(table), error.remedy) from error
    rows = kernels(found["launches"])
    write_json_atomic(out, {"schema": SCHEMA, "profiled": True, "kernels": rows})
    for row in rows:
        typer.echo(f"{_text(row)}\n")
    typer.echo(f"written: {out}")


def _run(command: list[str], name: str, table: Path, skip: int, count: int, program: str) -> None:
    from servemap.engines.ncu import ncu_argv

    argv = ncu_argv(command, kernel=name, log=str(table), program=program, skip=skip, count=count)
    table.unlink(missing_ok=True)
    try:
        code = subprocess.run(argv, check=False).returncode
    except OSError as error:
        raise ConfigError(
            f"ncu cannot be started: {error.strerror or error}",
            program,
            "install nsight-compute on the machine with the card, or name its path by --program",
        ) from error
    # A table that is there is read, and what ncu refused stands in it too.
    if not table.is_file():
        raise ConfigError(
            f"ncu ended with {code} and wrote nothing",
            shlex.join(argv),
            "run this command by hand and see what it says",
        )


def _text(row: dict[str, Any]) -> str:
    spreads = dict(row["figures"])
    longest = list(row["stalls"].items())[:5]
    spreads |= {f"waits for {reason}, cycles": spread for reason, spread in longest}
    lines = [
        [key, *(f"{spread[of]:.6g}" if spread else "-" for of in ("mean", "min", "max"))]
        for key, spread in spreads.items()
    ]
    body = tabulate(
        lines,
        headers=["figure", "mean", "min", "max"],
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    return f"{printable(row['kernel'])[:_LONGEST]}: {row['launches']} launches\n{body}"
