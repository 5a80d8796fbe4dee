"""The commands of `servemap` that are used before a campaign: doctor, init."""

import re
from pathlib import Path
from typing import Annotated

import typer

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.load import read_yaml
from servemap.prepare.doctor import examine
from servemap.prepare.draft import write_draft
from servemap.prepare.from_container import Runtime, draft_from_container
from servemap.prepare.from_url import draft_from_url
from servemap.prepare.lines import table
from servemap.prepare.node_draft import SshOptions

ConfigFile = Annotated[
    Path | None, typer.Option("--configfile", help="Campaign file; config/config.yaml if absent.")
]
Profile = Annotated[
    str | None, typer.Option("--profile", help="Profile whose campaign file is meant: cluster.")
]

PROFILE = re.compile(r"(?P<name>profile|config)(?:\.v(?P<version>\d+)\+)?\.yaml")


def campaign_file(configfile: Path | None, profile: str | None) -> Path:
    """Return the campaign file that Snakemake would read for the same options.

    Raises:
        ConfigError: there is no such profile, or it cannot be read.
    """
    if configfile is not None:
        return configfile
    if profile is not None:
        given = read_yaml(profile_file(profile)).get("configfile")
        if isinstance(given, list):
            given = given[-1] if given else None
        if given is not None:
            return Path(str(given))
    return Path("config/config.yaml")


def profile_file(profile: str) -> Path:
    """Return a profile's file: in the folder or link of that name, else below `profiles`.

    As Snakemake does, `profile.yaml` and `config.yaml` count, also with a version in the name, of
    which the newest is taken.
    """
    if Path(profile).is_file():
        return Path(profile)
    for folder in (Path(profile), Path("profiles") / profile):
        found = {
            (int(match["version"] or 0), match["name"]): path
            for path in (folder.iterdir() if folder.is_dir() else ())
            if (match := PROFILE.fullmatch(path.name))
        }
        if found:
            return found[max(found)]
    return Path(profile) / "profile.yaml"


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


def init(
    output: Annotated[Path, typer.Option("-o", "--output", help="Campaign file to write.")],
    from_container: Annotated[
        str | None,
        typer.Option(help="Container of a running server on the first of --nodes."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Hosts, the head first: a,b; `local` is this machine.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="User for ssh; yours if absent.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for ssh; 22 if absent.")] = None,
    key_file: Annotated[
        str | None, typer.Option(help="ssh private key; the agent's keys if absent.")
    ] = None,
    known_hosts: Annotated[
        str | None, typer.Option(help="File of trusted host keys; ~/.ssh/known_hosts if absent.")
    ] = None,
    jump: Annotated[
        str | None, typer.Option(help="ssh host in between: [USER@]HOST[:PORT].")
    ] = None,
    runtime: Annotated[Runtime, typer.Option(help="What runs the container.")] = "docker",
    from_url: Annotated[str | None, typer.Option(help="URL of a running server.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a campaign file from a running server: its container, or its URL."""
    if output.exists() and not force:
        raise ConfigError(
            "the file is there already", str(output), "give another -o, or --force to replace it"
        )
    ssh = SshOptions(user, port, key_file, known_hosts, jump)
    if from_container and nodes and not from_url:
        text = draft_from_container(from_container, nodes, ssh, runtime)
    elif from_url and not (from_container or nodes or ssh.given()):
        text = draft_from_url(from_url)
    else:
        raise ConfigError(
            "init needs one running server to start from",
            "servemap init",
            "give --from-container NAME --nodes a,b, or --from-url URL",
        )
    write_draft(output, text, force)
    # The head of the file explains the word.
    changes = sum("CHANGE" in line for line in text.splitlines()[2:])
    marked = f"; lines marked CHANGE: {changes}" if changes else ""
    typer.echo(f"written: {output}{marked}")
    typer.echo(f"next: servemap doctor --configfile {output}")
