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
    if out.resolve() == table.resolve():
        raise ConfigError("the figures would overwrite the table", str(out), "name another file")
    if script is not None and name is not None:
        _run(_words(script), name, table, skip, count, program)
    try:
        found = parse("ncu", read_bytes(table)).data
    except ParseError as error:
        raise ParseError(error.what, str(table), error.remedy) from error
    rows = kernels(found["launches"])
    write_json_atomic(out, {"schema": SCHEMA, "profiled": True, "kernels": rows})
    for row in rows:
        typer.echo(f"{_text(row)}\n")
    typer.echo(f"written: {out}")


def _words(script: str) -> list[str]:
    """Return a command's words."""
    why = "it is empty"
    try:
        if words := shlex.split(script):
            return words
    except ValueError as error:
        why = str(error)
    raise ConfigError(
        f"the script is no command: {why}", script, "give what you would type into a shell"
    )


def _run(command: list[str], name: str, table: Path, skip: int, count: int, program: str) -> None:
    from servemap.engines.ncu import ncu_argv

    argv = ncu_argv(command, kernel=name, log=str(table), program=program, skip=skip, count=count)
    if table.is_dir():
        raise ConfigError("the table would be a folder", str(table), "name a file")
    before = table.with_name(f"{table.name}.before")
    had = table.is_file()
    if had:
        table.replace(before)
    try:
        code = subprocess.run(argv, check=False).returncode
    except (OSError, ValueError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(
            f"ncu cannot be started: {said}",
            program,
            "install nsight-compute on the machine with the card, or name its path by --program",
        ) from error
    finally:
        wrote = table.is_file()
        # An earlier table gives way to a new one only.
        if had and wrote:
            before.unlink()
        elif had:
            before.replace(table)
    # A table that is there is read, and what ncu refused stands in it too.
    if not wrote:
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
