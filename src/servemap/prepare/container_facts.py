"""Reading `docker inspect` and `podman inspect` of a running container: pure functions."""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from servemap.model.secret_names import is_secret_variable
from servemap.onnode.redact import redact_text

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLUMBING = frozenset({"PATH", "HOME", "HOSTNAME", "TERM", "container", "PWD", "SHLVL"})
"""Variables that a runtime sets itself."""
_OF_ONE_NODE = frozenset(
    {"VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP", "NODE_RANK", "NODE_IP", "MASTER_ADDR"}
)
"""Variables whose value differs between the nodes of one server."""
_RUNTIME_LIMITS = frozenset({"nofile", "nproc"})
"""Limits that podman sets for every container."""
DEFAULT_SHM_BYTES = (64 << 20, 65_536_000)
"""What docker and podman give where nothing is asked for."""
_UNITS = (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10))


@dataclass(frozen=True)
class ContainerFacts:
    """What a campaign says of a container.

    Attributes:
        image: the image's name as it was given.
        image_id: its id.
        words: the command that runs in it, entry point first.
        mounts: HOST:CONTAINER[:ro].
        devices: as `--device` takes them.
        shm_size: as `--shm-size` takes it; None where it is the runtime's default or the host's.
        env: variables that the image does not set itself, secrets left out.
        env_of_node: those whose value belongs to this one node.
        secrets: names of variables whose value is not written.
        args: further options of `run`.
        notes: what cannot be carried over, in words.
        published: {port inside: port on the node}; empty on the host's network.
    """

    image: str
    image_id: str
    words: list[str]
    mounts: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    shm_size: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    env_of_node: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    published: dict[int, int] = field(default_factory=dict)


def read_container(found: Mapping[str, Any], image_env: Iterable[str]) -> ContainerFacts:
    """Return what one object of `inspect` says.

    Args:
        found: the object, of docker or podman.
        image_env: NAME=VALUE that the image sets itself.

    Raises:
        ValueError: it is not what either of them writes.
    """
    try:
        config, host = found["Config"], found["HostConfig"]
        words = [str(found["Path"]), *map(str, found["Args"] or [])]
        image = str(found.get("ImageName") or config["Image"])
        image_id = str(found["Image"])
        env, env_of_node, secrets, notes = _environment(config.get("Env") or [], image_env)
        devices, gpus = _devices(host)
        host_net = host.get("NetworkMode") == "host"
        if not host_net:
            notes.append(
                f"it runs on the network {host.get('NetworkMode') or 'default'!r}; servemap uses "
                "the host's network, so the port is the one that the server itself listens on"
            )
        return ContainerFacts(
            image,
            image_id,
            words,
            [_mount(mount) for mount in found.get("Mounts") or [] if _mount(mount)],
            devices,
            _shm_size(host),
            env,
            env_of_node,
            secrets,
            [*gpus, *_options(host, config)],
            notes,
            {} if host_net else _published(host),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer of `inspect`: {type(error).__name__} {error}") from error


def _environment(
    given: Iterable[str], image_env: Iterable[str]
) -> tuple[dict[str, str], dict[str, str], list[str], list[str]]:
    """Return plain variables, those of one node, names of secret ones, and notes."""
    of_image = set(image_env)
    plain: dict[str, str] = {}
    of_node: dict[str, str] = {}
    secrets, notes = [], []
    for pair in given:
        name, _, value = pair.partition("=")
        if pair in of_image or name in _PLUMBING:
            continue
        if not _VARIABLE.fullmatch(name):
            notes.append(f"a variable has the odd name {name!r} and is left out")
        elif is_secret_variable(name, value) or redact_text(value) != value:
            secrets.append(name)
        elif name in _OF_ONE_NODE:
            of_node[name] = value
        else:
            plain[name] = value
    return plain, of_node, secrets, notes


def _mount(mount: Mapping[str, Any]) -> str:
    kind, target = mount.get("Type"), mount["Destination"]
    if kind not in ("bind", "volume", None):
        return ""
    source = mount.get("Name") if kind == "volume" else mount["Source"]
    return f"{source}:{target}" + ("" if mount.get("RW", True) else ":ro")


def _devices(host: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return devices, and the options that give the cards."""
    devices: list[str] = []
    for device in host.get("Devices") or []:
        outside, inside = device["PathOnHost"], device.get("PathInContainer")
        if outside.startswith("/dev/infiniband/"):
            outside = inside = "/dev/infiniband"
        name = outside if inside in (None, "", outside) else f"{outside}:{inside}"
        if name not in devices:
            devices.append(name)
    gpus = []
    for request in host.get("DeviceRequests") or []:
        ids = [str(one) for one in request.get("DeviceIDs") or []]
        if request.get("Driver") == "cdi":
            devices += ids
        elif ids:
            text = f"device={','.join(ids)}"
            gpus.append(f'--gpus="{text}"' if len(ids) > 1 else f"--gpus={text}")
        else:
            count = request.get("Count", -1)
            gpus.append("--gpus=all" if count in (-1, None) else f"--gpus={count}")
    if host.get("Runtime") == "nvidia":
        gpus.append("--runtime=nvidia")
    return devices, gpus


def _shm_size(host: Mapping[str, Any]) -> str | None:
    size = host.get("ShmSize")
    if host.get("IpcMode") == "host" or not size or size in DEFAULT_SHM_BYTES:
        return None
    for unit, factor in _UNITS:
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _options(host: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return further options of `run` that are not the runtime's defaults."""
    words = []
    if host.get("NetworkMode") == "host":
        words.append("--network=host")
    if host.get("IpcMode") == "host":
        words.append("--ipc=host")
    if host.get("PidMode") == "host":
        words.append("--pid=host")
    if host.get("Privileged"):
        words.append("--privileged")
    for limit in host.get("Ulimits") or []:
        name = limit["Name"].lower().removeprefix("rlimit_")
        if name not in _RUNTIME_LIMITS:
            soft, hard = limit["Soft"], limit["Hard"]
            words.append(f"--ulimit={name}={soft}" + ("" if soft == hard else f":{hard}"))
    for key, option in (
        ("CapAdd", "cap-add"),
        ("SecurityOpt", "security-opt"),
        ("GroupAdd", "group-add"),
        ("ExtraHosts", "add-host"),
    ):
        words += [f"--{option}={value}" for value in host.get(key) or []]
    if host.get("CpusetCpus"):
        words.append(f"--cpuset-cpus={host['CpusetCpus']}")
    if host.get("Memory"):
        words.append(f"--memory={host['Memory']}")
    if config.get("User"):
        words.append(f"--user={config['User']}")
    return words


def _published(host: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    for inside, bindings in (host.get("PortBindings") or {}).items():
        for binding in bindings or []:
            number = inside.partition("/")[0]
            if number.isdigit() and str(binding.get("HostPort", "")).isdigit():
                found[int(number)] = int(binding["HostPort"])
    return found


def on_host(path: str, mounts: Iterable[str]) -> str | None:
    """Return where a path inside a container lies on the node; None where no mount holds it."""
    best: tuple[str, str] | None = None
    for mount in mounts:
        source, target = mount.split(":")[:2]
        below = target.rstrip("/") + "/"
        inside = (posixpath.normpath(path) + "/").startswith(below)
        if source.startswith("/") and inside and (best is None or len(target) > len(best[1])):
            best = (source, target)
    if best is None:
        return None
    return posixpath.normpath(posixpath.join(best[0], posixpath.relpath(path, best[1])))


def hub_folder(model: str, env: Mapping[str, str], user: str | None) -> str | None:
    """Return the folder inside a container that holds a model of the hub; None for a path.

    The hub's client keeps ORG/NAME as `models--ORG--NAME` below HF_HUB_CACHE, else below
    `$HF_HOME/hub`, else below `~/.cache/huggingface/hub`.
    """
    if model.startswith(("/", ".")) or not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)?", model):
        return None
    home = "/root" if user in (None, "", "0", "root") else None
    cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if cache is None and env.get("HF_HOME"):
        cache = f"{env['HF_HOME']}/hub"
    if cache is None and home:
        cache = f"{home}/.cache/huggingface/hub"
    return f"{cache}/models--{model.replace('/', '--')}" if cache else None
