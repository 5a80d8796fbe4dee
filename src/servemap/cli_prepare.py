"""The commands of `servemap` that are used before a campaign: doctor, init."""

from pathlib import Path
from typing import Annotated

import typer

from servemap.measure.setup import load_context
from servemap.model.load import read_yaml
from servemap.prepare.doctor import examine
from servemap.prepare.lines import table

ConfigFile = Annotated[
    Path | None, typer.Option("--configfile", help="Campaign file; config/config.yaml if absent.")
]
Profile = Annotated[
    str | None, typer.Option("--profile", help="Profile whose campaign file is meant: cluster.")
]


def campaign_file(configfile: Path | None, profile: str | None) -> Path:
    """Return the campaign file that Snakemake would read for the same options."""
    if configfile is not None:
        return configfile
    if profile is not None:
        settings = read_yaml(Path(profile) / "profile.yaml")
        given = settings.get("configfile")
        if isinstance(given, list):
            given = given[-1] if given else None
        if given is not None:
            return Path(str(given))
    return Path("config/config.yaml")


def doctor(configfile: ConfigFile = None, profile: Profile = None) -> None:
    """Check every node of a campaign before it is started; exit with 1 if something fails."""
    lines = examine(load_context(read_yaml(campaign_file(configfile, profile))))
    typer.echo(table(lines))
    failed = sum(line.state == "FAIL" for line in lines)
    unknown = sum(line.state == "?" for line in lines)
    warned = sum(line.state == "warn" for line in lines)
    typer.echo(f"\n{len(lines)} checks: {failed} failed, {warned} to look at, {unknown} not known")
    if failed:
        raise typer.Exit(1)
