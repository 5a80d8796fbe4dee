"""`servemap bench --curve`: the load client alone, once at each of some concurrencies.

It is what a case of kind `curve` does, without telemetry: each point is one run of the client in a
folder of its own.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from servemap.model.errors import ConfigError

OPTION = "--curve"
_NOT_WITH = ("--concurrency", "--rate", "--spec")
_WHERE = "servemap bench --curve"


def curve(argv: Sequence[str], client: Callable[[list[str]], int]) -> int:
    """Run the client at each concurrency; return the first exit code that is not 0, else 0.

    A point at which no request succeeded (1) is a result; refused input ends the curve.

    Raises:
        ConfigError: options that do not go together, or levels that are none.
    """
    parser = argparse.ArgumentParser(
        prog="servemap bench --curve",
        description="Run the load once at each of some concurrencies. Other options are those of "
        "`servemap bench`.",
        allow_abbrev=False,
    )
    parser.add_argument(OPTION, required=True, metavar="N,...", help="requests in flight")
    parser.add_argument("--out", required=True, metavar="DIR", help="for a folder cN each")
    options, rest = parser.parse_known_args(argv)
    for name in (word.partition("=")[0] for word in rest):
        if name in _NOT_WITH:
            raise ConfigError(
                f"{name} does not go with {OPTION}", _WHERE, "remove it: the curve gives the load"
            )
    try:
        levels = [int(word) for word in options.curve.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{options.curve!r} is no list of concurrencies", _WHERE, "give some, e.g. 1,4,16"
        ) from error
    codes = []
    for level in dict.fromkeys(levels):
        typer.echo(f"concurrency {level}")
        out = str(Path(options.out) / f"c{level}")
        codes.append(client([*rest, "--concurrency", str(level), "--out", out]))
        if codes[-1] > 1:
            break
        typer.echo("")
    return next((code for code in codes if code), 0)
