"""The command of every rank of a server, from the server spec: the same for all forms of it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servemap.engines.base import Engine, Placement, python_env
from servemap.engines.nsys import launched
from servemap.model.server_spec import Container, ServerSpec
from servemap.onnode.redact import redact_variable
from servemap.server.container.command import in_container
from servemap.server.context import Context, resolve_secrets


@dataclass(frozen=True)
class RankCommand:
    """How one rank is started.

    Attributes:
        placement: where.
        argv: its command; the runtime's client where it runs in a container.
        env: plain variables to add.
        secrets: variables that are stored nowhere.
        cwd: absolute folder to start in; the run's folder on the node if None.
        container: how the supervisor finds and ends its container; None without one.
        hook: folder that comes first on its PYTHONPATH (see `patch_hook`); None without patches.
        mounts: more mounts of its container than the campaign gives, as HOST:CONTAINER.
    """

    placement: Placement
    argv: list[str]
    env: dict[str, str]
    secrets: dict[str, str]
    cwd: str | None
    container: dict[str, Any] | None = None
    hook: str | None = None
    mounts: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the command as it is stored; of secret variables the names alone."""
        return {
            "node": self.placement.node,
            "rank": self.placement.rank,
            "argv": self.argv,
            "env": {name: redact_variable(name, value) for name, value in self.env.items()},
            "secrets": sorted(self.secrets),
            **({"hook": self.hook} if self.hook else {}),
        }


def placements(context: Context, variant: str, server: ServerSpec) -> list[Placement]:
    """Return where the ranks of a server run, rank 0 on the head."""
    nodes = context.plan.nodes_of(variant)
    specs = [context.node_spec(node_id) for node_id in nodes]
    return [
        Placement(spec.id, rank, len(specs), spec.address, specs[0].address, server.master_port)
        for rank, spec in enumerate(specs)
    ]


def rank_commands(
    context: Context, variant: str, server: ServerSpec, engine: Engine
) -> list[RankCommand]:
    """Return the ranks' commands in the order in which they are to be started.

    Raises:
        ConfigError: the engine cannot do what the spec asks for, or a secret is not set.
    """
    commands = [
        _command(context, server, engine, placement)
        for placement in placements(context, variant, server)
    ]
    if server.start_order == "workers_first":
        return [*commands[1:], commands[0]]
    return commands


def check_commands(context: Context, variant: str, server: ServerSpec, engine: Engine) -> None:
    """Refuse a spec that the engine has no command for, as `rank_commands` does, secrets aside."""
    for placement in placements(context, variant, server):
        _argv(context, server, engine, placement)


def _argv(context: Context, server: ServerSpec, engine: Engine, placement: Placement) -> list[str]:
    return engine.argv(
        server,
        context.plan.campaign.model,
        placement,
        python=context.python_on(placement.node),
        workdir=context.paths_from(placement.node),
    )


def _command(
    context: Context, server: ServerSpec, engine: Engine, placement: Placement
) -> RankCommand:
    here = context.nodes[placement.node].here
    workdir = context.paths_from(placement.node)
    argv = _argv(context, server, engine, placement)
    plain, secrets = resolve_secrets(python_env(server, workdir))
    argv = launched(argv, plain, placement.rank)
    env = {**engine.defaults(placement), **context.node_spec(placement.node).env, **plain}
    cwd = str(Path(workdir, server.cwd)) if server.cwd else None
    if cwd and here and server.container is None:
        cwd = str(Path(cwd).resolve())
    return RankCommand(
        placement,
        argv,
        {name: value for name, value in env.items() if name not in secrets},
        secrets,
        cwd,
    )


def boxed(
    context: Context,
    variant: str,
    boot_id: str,
    command: RankCommand,
    container: Container,
    image: str,
) -> RankCommand:
    """Return a rank's command as that of a container of the image with this id.

    Raises:
        ConfigError: an option of `server.container.args` cannot be given.
    """
    hook = [f"{command.hook}:{command.hook}"] if command.hook is not None else []
    mounts = [*container.mounts, *hook, *command.mounts]
    container = container.model_copy(update={"mounts": mounts})
    inside = in_container(
        container,
        become=context.node_spec(command.placement.node).become,
        variant=variant,
        boot_id=boot_id,
        image=image,
        argv=command.argv,
        env=command.env,
        secret_names=command.secrets.keys(),
        cwd=command.cwd,
    )
    return replace(command, argv=inside.argv, env={}, cwd=None, container=inside.container)
