"""The container form of a server: one command of the runtime, in the foreground."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servemap.model.container_args import check_container, option_values
from servemap.model.server_spec import Container
from servemap.onnode.container import LABEL
from servemap.onnode.supervise import KEEP_MARK, MARKER

LOG_DRIVERS = {"docker": "json-file", "podman": "k8s-file"}
"""Drivers that keep a log below a size and can read it again."""


def runtime_argv(
    container: Container, *, become: bool, keep_env: Collection[str] = ()
) -> list[str]:
    """Return the words that call the container runtime on a node.

    Args:
        container: names the runtime.
        become: call it by `sudo -n`.
        keep_env: variables that sudo must hand on; the runtime takes secrets from there.
    """
    if not become:
        return [container.runtime]
    kept = [f"--preserve-env={','.join(sorted(keep_env))}"] if keep_env else []
    return ["sudo", "-n", *kept, container.runtime]


def container_name(variant: str, boot_id: str) -> str:
    """Return the name of the container of one start."""
    return f"servemap-{variant}-{boot_id}"


@dataclass(frozen=True)
class InContainer:
    """What the supervisor is given for a server in a container.

    Attributes:
        argv: the runtime's client; it needs no environment but the secrets.
        container: the `container` of the supervisor's spec: how it finds and ends the container.
    """

    argv: list[str]
    container: dict[str, Any]


def in_container(
    container: Container,
    *,
    become: bool,
    variant: str,
    boot_id: str,
    image: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    secret_names: Collection[str],
    cwd: str | None,
) -> InContainer:
    """Return how the bare command of a server is started in a container instead.

    Args:
        variant: variant of the server, for the container's name.
        container, become, boot_id, image, argv, env, secret_names, cwd: see `container_argv`.

    Raises:
        ConfigError: an option in `args` cannot be given.
    """
    name = container_name(variant, boot_id)
    words = container_argv(
        container,
        become=become,
        name=name,
        boot_id=boot_id,
        image=image,
        argv=argv,
        env=env,
        secret_names=secret_names,
        cwd=cwd,
    )
    return InContainer(words, {"runtime": runtime_argv(container, become=become), "name": name})


def container_argv(
    container: Container,
    *,
    become: bool,
    name: str,
    boot_id: str,
    image: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    secret_names: Collection[str],
    cwd: str | None,
) -> list[str]:
    """Return the command that runs a server in a container, in the foreground.

    There is no `--rm`: the runtime keeps the exit code, the out-of-memory mark and the log until
    the supervisor has read them, and it is the supervisor that removes the container. Nothing is
    pulled: the image was made present before. The host's network and IPC are used, as collectives
    need them, unless `args` say otherwise; a `shm_size` asks for shared memory of the container's
    own, so it takes the host's IPC away unless `args` ask for it. Processes are not limited in
    number (podman's own limit counts threads, and an engine has thousands).

    Args:
        container: the container as the campaign describes it; its `args` come last, and an option
            given there replaces ours.
        become: call the runtime by `sudo -n`.
        name: of the container.
        boot_id: of the start; it is the container's label and in its environment.
        image: name or id; the id that was checked, so that a moved tag changes nothing.
        argv: the server's command inside; its first word replaces the image's entry point. Where
            `args` give an entry point, that gets the whole command.
        env: plain variables.
        secret_names: variables whose values the client finds in its own environment.
        cwd: folder inside to start in; the image's own if None.

    Raises:
        ConfigError: an option in `args` cannot be given.
    """
    check_container(container, "server.container")
    given = option_values(container.args)
    words = runtime_argv(container, become=become, keep_env=secret_names)
    words += ["run", f"--name={name}", f"--label={LABEL}={boot_id}", "--pull=never"]
    words += _namespaces(container, given)
    words += _limits(container, given)
    for device in container.devices:
        words.append(f"--device={device}")
    for mount in container.mounts:
        words.append(f"--volume={mount}")
    for variable, value in sorted({**KEEP_MARK, **env, MARKER: boot_id}.items()):
        words.append(f"--env={variable}={value}")
    for variable in sorted(secret_names):
        words.append(f"--env={variable}")
    if cwd is not None and not given.keys() & {"--workdir", "-w"}:
        words.append(f"--workdir={cwd}")
    command = list(argv)
    if "--entrypoint" not in given:
        words.append(f"--entrypoint={command.pop(0)}")
    return [*words, *container.args, image, *command]


def _namespaces(container: Container, given: Mapping[str, list[str]]) -> list[str]:
    words = []
    if not given.keys() & {"--network", "--net"}:
        words.append("--network=host")
    if "--ipc" not in given and container.shm_size is None:
        words.append("--ipc=host")
    of_host = "host" in given.get("--ipc", ())
    # podman refuses a size for the host's shared memory; docker takes it and does nothing.
    if container.shm_size is not None and "--shm-size" not in given and not of_host:
        words.append(f"--shm-size={container.shm_size}")
    return words


def _limits(container: Container, given: Mapping[str, list[str]]) -> list[str]:
    words = []
    capabilities = {name.upper().removeprefix("CAP_") for name in given.get("--cap-add", ())}
    if "--privileged" not in given and not capabilities & {"IPC_LOCK", "ALL"}:
        words.append("--cap-add=IPC_LOCK")
    limits = {value.partition("=")[0] for value in given.get("--ulimit", ())}
    if not limits & {"memlock", "host"}:
        words.append("--ulimit=memlock=-1:-1")
    if "--pids-limit" not in given:
        words.append("--pids-limit=-1")
    if "--log-driver" not in given:
        words.append(f"--log-driver={LOG_DRIVERS[container.runtime]}")
        if "--log-opt" not in given:
            words.append(f"--log-opt=max-size={container.log_max_bytes}")
    return words
